"""What the GPU benchmarks share: steps become times, times become figures, figures a record."""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from plait.config import RunConfig
from plait.data.loading import load_data
from plait.training.build import build, build_stage
from plait.training.loop import Stage, StepRecord, TrainState, run_stage

NUM_WINDOWS = 7
PEER_WARM_UP = 10
"""Steps of what captures nothing and so needs fewer of them."""

LINEAR_TASKS = {
    "sst": {"head": {"name": "linear", "dropout": 0.1}, "loss": "cross-entropy"},
    "quora": {"head": {"name": "linear", "dropout": 0.1}, "loss": "bce"},
    "sts": {"head": {"name": "linear", "dropout": 0.1}, "loss": "mse"},
}
"""The course's tasks, one linear layer each: what the peers written out have, too."""


def begin(
    about: str, *, shape: Any, batch_size: Any = None, window: int = 40
) -> argparse.ArgumentParser:
    """Make the arguments that all have; lists of shapes and batch sizes are gone through.

    What has no batch size of its own has no peer either.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    several: dict[str, Any] = {"nargs": "+"} if isinstance(shape, list) else {}
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--shape", default=shape, **several)
    if batch_size is not None:
        parser.add_argument("--batch-size", type=int, default=batch_size, **several)
        parser.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--window", type=int, default=window, help="steps in a window")
    parser.add_argument("--warm-up", type=int, default=300, help="plait's steps before the windows")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--no-graphs", action="store_true")
    parser.add_argument("--out", type=Path)
    torch.backends.cuda.matmul.allow_tf32 = False
    return parser


def run_settings(args: argparse.Namespace, encoder: Path) -> dict[str, Any]:
    """Return what a timed recipe has besides its tasks: bf16 on a GPU."""
    return {
        "encoder": {"source": str(encoder)},
        "device": args.device,
        "precision": "bf16" if on_gpu(args) else "fp32",
        "graphs": not args.no_graphs,
    }


def time_plait(
    config: RunConfig,
    args: argparse.Namespace,
    look: Callable[[Iterator[StepRecord]], None] | None = None,
) -> dict[str, float]:
    """Time the steps of a recipe's first stage; `look` as in time_stage."""
    before = clear(args)
    parts = build(config)
    data = load_data(config, parts.tokenizer, "train", data=str(args.data))
    began = time.perf_counter()
    stage = build_stage(parts, 0, data)
    parts.model.train()
    return time_stage(stage, args, began, look) | peak(args, before)


def time_stage(
    stage: Stage,
    args: argparse.Namespace,
    began: float,
    look: Callable[[Iterator[StepRecord]], None] | None = None,
) -> dict[str, float]:
    """Time a stage's steps in windows after the warm-up, between which `look` may take some."""
    # A short stage is timed by what there is of it.
    warm_up = min(args.warm_up, stage.num_steps() // 2)
    window = max(1, min(args.window, (stage.num_steps() - warm_up) // 2))
    times: list[float] = []
    with own_stream(args):
        records = run_stage(stage, TrainState())
        for done, record in enumerate(records, 1):
            if done >= warm_up and (done - warm_up) % window == 0:
                times.append(tick(args))
            if len(times) > NUM_WINDOWS:
                break
            if look is not None and record.step == warm_up:
                look(records)
                times[0] = tick(args)
    return summarise(times, window) | {
        "first_steps": warm_up,
        "first_s": times[0] - began,
        "captures": getattr(stage.step.runner, "num_captures", 0),
    }


def enough_steps(args: argparse.Namespace) -> int:
    """Count the steps that warm-up and windows take, and some to look at."""
    return args.warm_up + (NUM_WINDOWS + 1) * args.window + 40


def time_calls(step: Callable[[], object], args: argparse.Namespace) -> dict[str, float]:
    """Time a function that makes one step whenever it is called."""
    for _ in range(min(PEER_WARM_UP, args.warm_up)):
        step()
    times = [tick(args)]
    for _ in range(NUM_WINDOWS):
        for _ in range(args.window):
            step()
        times.append(tick(args))
    return summarise(times, args.window)


def summarise(times: list[float], window: int) -> dict[str, float]:
    """Turn the moments at which windows begin and end into milliseconds of a step."""
    steps = [1000 * (b - a) / window for a, b in itertools.pairwise(times)]
    return {
        "step_ms": statistics.median(steps),
        "fastest_ms": min(steps),
        "slowest_ms": max(steps),
    }


def tick(args: argparse.Namespace) -> float:
    """Return the time once the device has done all it was asked."""
    if on_gpu(args):
        torch.cuda.synchronize()
    return time.perf_counter()


def clear(args: argparse.Namespace) -> int:
    """Give back what the last measurement left; return the bytes still in use."""
    gc.collect()
    if not on_gpu(args):
        return 0
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def peak(args: argparse.Namespace, before: int) -> dict[str, float]:
    """Return the most memory in use since `clear`, and what the allocator held for it."""
    if not on_gpu(args):
        return {"peak_mib": 0.0, "reserved_mib": 0.0}
    return {
        "peak_mib": (torch.cuda.max_memory_allocated() - before) / 2**20,
        "reserved_mib": torch.cuda.max_memory_reserved() / 2**20,
    }


def on_gpu(args: argparse.Namespace) -> bool:
    return torch.device(args.device).type == "cuda"


def own_stream(args: argparse.Namespace) -> AbstractContextManager[object]:
    """Work beside the default stream of a GPU, which cannot be captured."""
    return torch.cuda.stream(torch.cuda.Stream()) if on_gpu(args) else nullcontext()


def describe(benchmark: str, args: argparse.Namespace, *packages: str) -> dict[str, Any]:
    """Begin a record: what is measured, how, and where."""
    return {
        "benchmark": benchmark,
        "settings": {
            key: value
            for key, value in vars(args).items()
            if isinstance(value, str | int | list) and key != "device"
        },
        "hardware": torch.cuda.get_device_name() if on_gpu(args) else "cpu",
        "versions": {"python": sys.version.split()[0], **_versions("torch", *packages)},
    }


def _versions(*packages: str) -> dict[str, str]:
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def publish(record: Mapping[str, Any], args: argparse.Namespace) -> None:
    """Print a record, and write it where asked."""
    text = json.dumps(record, indent=1)
    print(text, flush=True)
    if args.out:
        args.out.write_text(text + "\n", encoding="utf-8")
