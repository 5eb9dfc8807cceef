"""Processes that train together, started as a user would start them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from plait.training.listeners import Listener

HERE = Path(__file__).parent
TIMEOUT = 240

STILL = [
    "encoder.dropout=0",
    "tasks.mood.head={name='linear', dropout=0}",
    "tasks.same.head={name='linear', dropout=0}",
    "score_first=false",
    "log_every=1",
]
"""Overrides under which nothing is drawn that depends on who draws it."""


def torchrun(num_workers: int, *words: str | Path) -> list[str]:
    """Return the command that starts workers on this machine."""
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    return [*start, "--nproc-per-node", str(num_workers), *map(str, words)]


def environment(cache: Path) -> dict[str, str]:
    """Return an environment in which many processes share two cores."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "PLAIT_CACHE": str(cache)}


def train_all(num_workers: int, folder: Path, runs: list[dict[str, Any]]) -> None:
    """Train runs one after the other by one team."""
    wanted = folder / f"wanted-{num_workers}.json"
    wanted.write_text(json.dumps(runs))
    done = subprocess.run(
        torchrun(num_workers, HERE / "many_runs.py", wanted),
        env=environment(folder / "cache"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT * 2,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


class Norms(Listener):
    """Notes the size of every update's gradient, to which AdamW's updates are blind."""

    def __init__(self, run: Path | str):
        self.path = Path(f"{run}.norms")
        self.norms: list[float] = []

    def step(self, record: Any) -> None:
        """Note one."""
        self.norms.append(float(record.result.grad_norm))

    def close(self) -> None:
        """Leave them beside the run."""
        self.path.write_text(json.dumps(self.norms))


def read_norms(run: Path) -> list[float]:
    """Return what was noted beside a run."""
    norms: list[float] = json.loads(Path(f"{run}.norms").read_text())
    return norms


def read_losses(run: Path) -> list[dict[str, Any]]:
    """Return what the log says of every update."""
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["event"] == "losses"]
