"""What every benchmark's record holds: settings, hardware, versions, figures of both sides.

    record = {benchmark, settings, hardware, versions, unit, peers, plait, ratios, ...}

A side's figures are {median, low, high, runs}; `ratios` are of plait over the best peer, more
is better. scripts/make_speed.py makes docs/speed.md of the records in benchmarks/records.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "records"
PACKAGES = (
    *("torch", "tokenizers", "transformers", "sentence-transformers", "datasets", "numpy"),
    *("ray", "optuna"),
)


def spread(values: list[float]) -> dict[str, float]:
    """Return the median of repeats, and the lowest and highest."""
    shown = {"median": statistics.median(values), "low": min(values), "high": max(values)}
    return {name: round(value, 4) for name, value in shown.items()} | {"runs": len(values)}


def hardware() -> dict[str, Any]:
    """Say what it runs on."""
    found: dict[str, Any] = {"cpu": _cpu_model(), "cores": os.cpu_count()}
    found["load"] = [round(value, 2) for value in os.getloadavg()]
    import torch

    found["threads"] = torch.get_num_threads()
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
    return found


def versions() -> dict[str, str]:
    """Return the versions of what takes part, where it is installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def write(name: str, out: Path | None, **parts: Any) -> None:
    """Write a benchmark's record where it is kept, or to `out`."""
    record = {"benchmark": name, "hardware": hardware(), "versions": versions(), **parts}
    path = out or FOLDER / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(f"written: {path}")


def _cpu_model() -> str:
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
