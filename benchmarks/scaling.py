"""Time training by one process and by two on a CPU, and reckon the second from the first.

    python benchmarks/scaling.py [--encoder packaged] [--batch-size 32] [--updates 6]

The same recipe and the same batches (of the sample's paraphrase pairs), one thread a process, in
turns. What one process takes at two batch sizes says what a row and the rest of an update take;
what two take to make their gradients one is timed apart. From these scale_model.py reckons
the update of two, which is then compared with the one measured.

Other work on the machine disturbs the clock: it is read off the fastest update of each side, and
the processes' own CPU seconds an update, of which the median is taken, are recorded beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import records
from scale_model import Machine, fit, reckon

REDUCTIONS = 12
"""Times that two processes make a gradient one, to see how long it takes."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", default="packaged")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--updates", type=int, default=6, help="timed updates a turn")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the record here, not to benchmarks/records")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args)
        return
    half = args.batch_size // 2
    sides = {"1 process": (1, args.batch_size), "half": (1, half), "2": (2, args.batch_size)}
    clock: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    reductions, gradient_bytes = [], 0
    for _ in range(args.repeats):
        for name, (workers, batch_size) in sides.items():
            found = start(workers, batch_size, args)
            clock[name] += found["seconds"]
            cpu[name] += found["cpu"]
            reductions += found.get("reductions", [])
            gradient_bytes = found["gradient_bytes"]
            middle = statistics.median(found["seconds"])
            print(f"{name:10} {1000 * middle:8.1f} ms an update", flush=True)
    report(args, clock, cpu, reductions, gradient_bytes)


def start(workers: int, batch_size: int, args: argparse.Namespace) -> dict[str, Any]:
    """Time updates in processes of their own; return what the first of them says."""
    command = [sys.executable]
    if workers > 1:
        command += ["-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(workers)]
    command += [__file__, "--worker", "--encoder", args.encoder]
    command += ["--batch-size", str(batch_size), "--updates", str(args.updates)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def work(args: argparse.Namespace) -> None:
    """Train a few updates, alone or as one of a team, and print their seconds."""
    from plait.scale.launch import find_launch, joined
    from plait.training.team import ALONE

    launch = find_launch()
    if launch is None:
        print(json.dumps(time_updates(args, ALONE)))
        return
    with joined(launch) as team:
        found = time_updates(args, team)
        found["reductions"] = time_reductions(team, found["gradient_bytes"])
        # A worker waits for the slower one, so that all have the same times; not so on the CPU.
        found["cpu"] = [max(each) for each in zip(*team.each(found["cpu"]), strict=True)]
        if team.leads:
            print(json.dumps(found))


def time_updates(args: argparse.Namespace, team: Any) -> dict[str, Any]:
    """Return the seconds of each update but the first, by the clock and on the CPU."""
    from plait.config import read_recipe
    from plait.data.loading import load_data
    from plait.training.build import build, build_stage
    from plait.training.loop import TrainState, run_stage

    settings = [f"encoder.source={args.encoder}", "device=cpu", 'train.tasks=["paraphrase"]']
    config = read_recipe("demo", [*settings, f"train.batch_size={args.batch_size}"])
    parts = build(config, team=team)
    stage = build_stage(parts, 0, load_data(config, parts.tokenizer, "train"))
    parts.model.train()
    moments, spent = [], []
    for record in islice(run_stage(stage, TrainState()), args.updates + 1):
        if record.num_examples == args.batch_size:
            moments.append(time.perf_counter())
            spent.append(time.process_time())
    return {
        "seconds": differences(moments),
        "cpu": differences(spent),
        "gradient_bytes": 4 * len(stage.step.gradients.total),
    }


def time_reductions(team: Any, num_bytes: int) -> list[float]:
    """Return the seconds of making one gradient of everyone's."""
    import torch

    gradient = torch.ones(num_bytes // 4)
    moments = []
    for _ in range(REDUCTIONS + 1):
        team.any(False)  # all begin at once
        begun = time.perf_counter()
        team.reduce(gradient)
        moments.append(time.perf_counter() - begun)
    return moments[1:]


def differences(moments: list[float]) -> list[float]:
    return [after - before for before, after in pairwise(moments)]


def report(
    args: argparse.Namespace,
    clock: dict[str, list[float]],
    cpu: dict[str, list[float]],
    reductions: list[float],
    gradient_bytes: int,
) -> None:
    """Compare what was reckoned with what was measured, and write the record."""
    batch = args.batch_size
    reduce_s = min(reductions)
    speeds = {}
    for name, times, choose in (("clock", clock, min), ("cpu", cpu, statistics.median)):
        taken = {side: choose(values) for side, values in times.items()}
        row, fixed = fit({batch // 2: taken["half"], batch: taken["1 process"]})
        machine = Machine(row, fixed, gradient_bytes, 1e10, gradient_bytes / reduce_s, 0.0)
        reckoned = reckon(machine, 2, batch).seconds
        speeds[name] = {
            "one_ms": round(1000 * taken["1 process"], 1),
            "two_ms": round(1000 * taken["2"], 1),
            "two_reckoned_ms": round(1000 * reckoned, 1),
            "row_ms": round(1000 * row, 2),
            "fixed_ms": round(1000 * fixed, 1),
            "scaling": round(taken["1 process"] / taken["2"], 2),
            "scaling_reckoned": round(taken["1 process"] / reckoned, 2),
        }
        print(f"by the {name}: {speeds[name]}")
    one = records.spread([batch / seconds for seconds in clock["1 process"]])
    two = records.spread([batch / seconds for seconds in clock["2"]])
    told = speeds["clock"]
    records.write(
        "scaling",
        args.out,
        settings={
            "encoder": args.encoder,
            "batch_size": batch,
            "updates": args.updates,
            "turns": args.repeats,
            "threads a process": 1,
        },
        unit="rows/s",
        best_peer="1 process",
        peers={"1 process": one},
        plait={"2 processes": two},
        ratios={"2 processes": round(two["median"] / one["median"], 2)},
        goals={},
        gradient_mib=round(gradient_bytes / 2**20, 1),
        reduce_ms=round(1000 * reduce_s, 1),
        speeds=speeds,
        note=(
            f"Making two gradients of {gradient_bytes / 2**20:.0f} MiB one takes "
            f"{1000 * reduce_s:.0f} ms. From this and from one process's fastest updates of "
            f"{batch // 2} and {batch} rows, two processes' are reckoned to take "
            f"{told['two_reckoned_ms']:.0f} ms, {told['scaling_reckoned']:.2f} times as fast as "
            f"one; the fastest took {told['two_ms']:.0f} ms, {told['scaling']:.2f} times as fast. "
            f"In CPU seconds of a process, which leave out other work on the machine: "
            f"{speeds['cpu']['scaling_reckoned']:.2f} reckoned, {speeds['cpu']['scaling']:.2f} "
            "measured."
        ),
    )


if __name__ == "__main__":
    main()
