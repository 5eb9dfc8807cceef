"""Time plait's side of the GPU benchmarks several times over and keep each pass's median.

    python benchmarks/gpu_medians.py --data DIR --tokenizer FILE --out FILE.jsonl [--passes 3]

A pass is a process of its own that goes through CASES; a line of FILE is what all passes found of
one case. Compare two commits on one machine, with nothing else running: FILE says on which.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

import records

SMALL, BASE = "e5-small", "bert-base"
CASES = [
    ("gpu_train", SMALL, 8, 80, 250),
    ("gpu_train", BASE, 8, 80, 250),
    ("gpu_train", SMALL, 256, 20, 60),
    ("gpu_train", BASE, 256, 12, 60),
    ("gpu_tasks", SMALL, 32, 60, 240),
    ("gpu_surgery", SMALL, 8, 40, 250),
    ("gpu_smart", SMALL, 8, 40, 250),
    ("gpu_surgery", SMALL, 32, 20, 200),
    ("gpu_smart", SMALL, 256, 15, 60),
    ("gpu_surgery", BASE, 8, 20, 250),
    ("gpu_smart", BASE, 8, 20, 250),
]
"""Script, shape, batch size, steps a window, steps before the windows: the telling ones first."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.jsonl")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1e9, help="no case begins after them")
    parser.add_argument("--one-pass", type=Path, metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one_pass:
        run_pass(args)
        return
    end = time.time() + args.seconds
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "raw.jsonl"
        for _ in range(args.passes):
            words = ["--data", args.data, "--tokenizer", args.tokenizer, "--out", args.out]
            words += ["--one-pass", raw, "--seconds", end - time.time()]
            subprocess.run([sys.executable, __file__, *map(str, words)], check=False)
            write(raw, args.out)


def run_pass(args: argparse.Namespace) -> None:
    """Go through the cases; each appends its figures."""
    end = time.time() + args.seconds
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "record.json"
        for script, shape, batch_size, window, warm_up in CASES:
            if time.time() >= end:
                return
            given = {"--data": args.data, "--tokenizer": args.tokenizer, "--shape": shape}
            given |= {"--batch-size": batch_size, "--window": window, "--warm-up": warm_up}
            given |= {"--out": found}
            sys.argv = [script, "--no-peer", *(str(w) for pair in given.items() for w in pair)]
            began = time.perf_counter()
            try:
                importlib.import_module(script).main()
            except Exception as error:  # the other cases go on
                print(f"{script} {shape} {batch_size} failed: {error!r}", flush=True)
                continue
            record = json.loads(found.read_text(encoding="utf-8"))
            for kind, figures in sides(record).items():
                setting = {"shape": shape, "batch_size": batch_size, "kind": kind}
                setting |= {"window": window, "warm_up": warm_up}
                line = {"script": script, "setting": setting, "figures": figures}
                with args.one_pass.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
            print(f"{script} {shape} {batch_size}: {time.perf_counter() - began:.1f} s", flush=True)


def sides(record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return plait's figures, by kind of step where a script times two."""
    found: dict[str, Any] = record["rows"][0]["plait"] if "rows" in record else record["plait"]
    return {"plain": found} if "step_ms" in found else found


def write(raw: Path, out: Path) -> None:
    """Write a line for each case: what every pass found of it."""
    cases: dict[str, list[dict[str, float]]] = defaultdict(list)
    for line in raw.read_text(encoding="utf-8").splitlines() if raw.exists() else ():
        case = json.loads(line)
        figures = case.pop("figures")
        cases[json.dumps(case)].append(figures)
    hardware, versions = records.hardware(), records.versions()
    same = {"commit": os.environ.get("PLAIT_COMMIT") or _commit(), "gpu": hardware.get("gpu")}
    same |= {"cpu": hardware["cpu"], "torch": versions["torch"]}
    lines = []
    for case, passes in cases.items():
        steps = [round(figures["step_ms"], 4) for figures in passes]
        told = {"step_ms": steps, "median_ms": round(median(steps), 4)}
        told["fastest_ms"] = round(min(figures["fastest_ms"] for figures in passes), 4)
        told["peak_mib"] = round(passes[-1]["peak_mib"], 1)
        told["first_s"] = [round(figures["first_s"], 2) for figures in passes]
        lines.append(json.dumps(json.loads(case) | told | same))
    out.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _commit() -> str:
    words = ["git", "rev-parse", "--short", "HEAD"]
    told = subprocess.run(words, cwd=Path(__file__).parent, capture_output=True, text=True)
    return told.stdout.strip() or "unknown"


if __name__ == "__main__":
    main()
