"""Time several runs on one GPU at once: in turns, and side by side through NVIDIA's MPS.

    python benchmarks/gpu_jobs.py --data DIR --tokenizer FILE [--jobs 1 2 4 8] [--out FILE]

Each run is a process of its own that trains an encoder of e5-small's shape with batches of 8;
the figure is the steps of all of them in a second, over those of one alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from steps import begin, describe, publish

from plait.training.sharing import shared_gpu


def main() -> None:
    parser = begin(__doc__, shape="e5-small", batch_size=8, window=150)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2, 4, 8])
    args = parser.parse_args()
    record = describe("gpu-jobs", args)
    alone = run(args, 1)
    runs: dict[str, Any] = {"alone": {"jobs": 1, "mps": False, "step_ms": alone}}
    most = max(args.jobs)
    runs["in turns"] = {"jobs": most, "mps": False, "step_ms": run(args, most)}
    with shared_gpu(2) as shares:
        if not shares:
            sys.exit("there is no nvidia-cuda-mps-control here")
        for jobs in args.jobs:
            runs[f"{jobs} shared"] = {"jobs": jobs, "mps": True, "step_ms": run(args, jobs)}
    for row in runs.values():
        row["throughput"] = round(sum(1 / ms for ms in row["step_ms"]) * alone[0], 3)
    publish(record | {"runs": runs}, args)


def run(args: Any, jobs: int) -> list[float]:
    """Start so many processes at once and return the time of a step in each."""
    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder) / f"{i}.json" for i in range(jobs)]
        words = ["--data", args.data, "--tokenizer", args.tokenizer, "--shape", args.shape]
        words += ["--batch-size", args.batch_size, "--window", args.window, "--no-peer"]
        words += ["--warm-up", args.warm_up]
        script = Path(__file__).with_name("gpu_train.py")
        environment = {**os.environ, "OMP_NUM_THREADS": "2"}
        started = [
            subprocess.Popen(
                [sys.executable, script, *map(str, words), "--out", out],
                stdout=subprocess.DEVNULL,
                env=environment,
            )
            for out in outs
        ]
        codes = [process.wait() for process in started]
        if any(codes):
            sys.exit("a run failed")
        return [json.loads(out.read_text())["plait"]["step_ms"] for out in outs]


if __name__ == "__main__":
    main()
