"""Time training steps on a GPU beside transformers' Trainer: same data, weights and batch size.

    python benchmarks/gpu_train.py --data DIR --tokenizer FILE [--shape bert-base] [--batch-size 8]

Cross-encoded pairs of quora-train.csv, their real lengths, bf16 both. Each takes several
windows of steps after a warm-up; the figure is the median window's time of a step. What
plait spends on capturing is in `first_s`, the time of all steps before the windows.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))
import itertools

from encoders import write_encoder

from plait.config import read_recipe
from plait.training.build import build, load_data
from plait.training.loop import TrainState, run_stage
from plait.training.stages import build_stage

NUM_WINDOWS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--shape", default="bert-base")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--window", type=int, default=40, help="steps in a window")
    parser.add_argument("--warm-up", type=int, default=300, help="plait's steps before the windows")
    parser.add_argument("--peer", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--no-graphs", action="store_true")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    with tempfile.TemporaryDirectory() as folder:
        encoder = write_encoder(args.shape, args.tokenizer, Path(folder))
        record: dict[str, Any] = {
            "benchmark": "gpu-train",
            "settings": {"shape": args.shape, "batch_size": args.batch_size},
            "hardware": torch.cuda.get_device_name(),
            "versions": {"torch": torch.__version__, "python": sys.version.split()[0]},
            "plait": time_plait(args, encoder),
        }
        if args.peer:
            record["peer"] = {"name": "transformers.Trainer", **time_trainer(args, encoder)}
            record["ratio"] = record["peer"]["step_ms"] / record["plait"]["step_ms"]
    print(json.dumps(record, indent=1))
    if args.out:
        args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def time_plait(args: argparse.Namespace, encoder: Path) -> dict[str, float]:
    steps = args.warm_up + NUM_WINDOWS * args.window
    config = read_recipe(
        "course",
        [
            f"encoder.source={encoder}",
            "stages=['finetune']",
            "train.tasks=['quora']",
            "train.schedule=round-robin",
            f"train.batch_size={args.batch_size}",
            "train.epochs=20",
            f"train.max_steps={steps}",
            "precision=bf16",
            f"graphs={'false' if args.no_graphs else 'true'}",
        ],
    )
    parts = build(config)
    data = load_data(config, parts.tokenizer, "train", data=str(args.data))
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    stage = build_stage(parts, 0, data)
    parts.model.train()
    times = []
    with torch.cuda.stream(torch.cuda.Stream()):
        records = run_stage(stage, TrainState())
        for record in records:
            place = record.step - args.warm_up
            if place >= 0 and place % args.window == 0:
                torch.cuda.synchronize()
                times.append(time.perf_counter())
            if args.profile and record.step == args.warm_up:
                _profile(records)
                times.append(time.perf_counter())
    return summarise(times, args.window) | {
        "first_s": times[0] - began,
        "captures": getattr(stage.step.runner, "num_captures", 0),
        "peak_mib": torch.cuda.max_memory_allocated() >> 20,
    }


def _profile(records: Any) -> None:
    """Show what 30 steps spend on the device and off it."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        began = time.perf_counter()
        for _ in range(30):
            next(records)
        asked = time.perf_counter() - began
        torch.cuda.synchronize()
    events = seen.key_averages()
    kernels = [e for e in events if e.device_type == torch.autograd.DeviceType.CUDA]
    busy = sum(e.self_device_time_total for e in kernels)
    count = sum(e.count for e in kernels)
    print(
        f"30 steps: {busy / 30000:.2f} ms/step busy, {count / 30:.0f} kernels/step, asked in "
        f"{asked * 1000 / 30:.2f} ms/step"
    )
    for event in sorted(kernels, key=lambda e: -e.self_device_time_total)[:40]:
        total = event.self_device_time_total / 30
        print(f"{total:9.1f} us {event.count / 30:7.1f} x  {event.key[:110]}")


def time_trainer(args: argparse.Namespace, encoder: Path) -> dict[str, float]:
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    tokenizer = AutoTokenizer.from_pretrained(str(encoder))
    model = AutoModelForSequenceClassification.from_pretrained(str(encoder), num_labels=2)
    rows = read_pairs(args.data / "quora-train.csv", 20_000)
    encoded = tokenizer(
        [a for a, _, _ in rows], [b for _, b, _ in rows], truncation=True, max_length=128
    )
    data = [
        {key: encoded[key][i] for key in encoded} | {"labels": rows[i][2]} for i in range(len(rows))
    ]
    times: list[float] = []
    warm_up = 20

    class Clock(TrainerCallback):
        def on_step_end(self, _settings: Any, state: Any, _control: Any, **_: Any) -> None:
            if state.global_step >= warm_up and (state.global_step - warm_up) % args.window == 0:
                torch.cuda.synchronize()
                times.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        torch.cuda.reset_peak_memory_stats()
        Trainer(
            model=model,
            args=TrainingArguments(
                folder,
                per_device_train_batch_size=args.batch_size,
                max_steps=warm_up + NUM_WINDOWS * args.window,
                num_train_epochs=20,
                learning_rate=5e-5,
                bf16=True,
                save_strategy="no",
                report_to="none",
                logging_steps=1000,
                disable_tqdm=True,
            ),
            train_dataset=data,  # type: ignore[arg-type]
            data_collator=DataCollatorWithPadding(tokenizer),
            callbacks=[Clock()],
        ).train()
    return summarise(times, args.window) | {"peak_mib": torch.cuda.max_memory_allocated() >> 20}


def read_pairs(path: Path, limit: int) -> list[tuple[str, str, int]]:
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file, delimiter="\t")
        return [
            (row["sentence1"], row["sentence2"], int(float(row["is_duplicate"])))
            for row, _ in zip(lines, range(limit), strict=False)
        ]


def summarise(times: list[float], window: int) -> dict[str, float]:
    steps = [1000 * (b - a) / window for a, b in itertools.pairwise(times)]
    return {
        "step_ms": statistics.median(steps),
        "fastest_ms": min(steps),
        "slowest_ms": max(steps),
    }


if __name__ == "__main__":
    main()
