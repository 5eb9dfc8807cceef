"""Time training steps on a GPU beside transformers' Trainer: same data, weights and batch size.

    python benchmarks/gpu_train.py --data DIR --tokenizer FILE [--shape bert-base] [--batch-size 8]

Cross-encoded pairs of quora-train.csv, their real lengths, bf16 both. Each takes several
windows of steps after a warm-up; the figure is the median window's time of a step. What
plait spends on capturing is in `first_s`, the time of all steps before the windows.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from encoders import write_encoder
from steps import (
    NUM_WINDOWS,
    begin,
    clear,
    describe,
    enough_steps,
    on_gpu,
    peak,
    publish,
    run_settings,
    summarise,
    tick,
    time_plait,
)

from plait.config import read_recipe


def main() -> None:
    parser = begin(__doc__, shape="bert-base", batch_size=8)
    parser.add_argument("--profile", action="store_true", help="show what 30 steps spend")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        encoder = write_encoder(args.shape, args.tokenizer, Path(folder))
        record = describe("gpu-train", args, "transformers") | {"plait": time_ours(args, encoder)}
        if args.peer:
            record["peer"] = {"name": "transformers.Trainer", **time_trainer(args, encoder)}
            record["ratio"] = record["peer"]["step_ms"] / record["plait"]["step_ms"]
    publish(record, args)


def time_ours(args: argparse.Namespace, encoder: Path) -> dict[str, float]:
    train = {
        "tasks": ["quora"],
        "schedule": "round-robin",
        "batch_size": args.batch_size,
        "epochs": 20,
        "max_steps": enough_steps(args),
    }
    config = read_recipe("course", extra=run_settings(args, encoder) | {"train": train})
    return time_plait(config, args, _profile if args.profile else None)


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
                times.append(tick(args))

    before = clear(args)
    with tempfile.TemporaryDirectory() as folder:
        Trainer(
            model=model,
            args=TrainingArguments(
                folder,
                per_device_train_batch_size=args.batch_size,
                max_steps=warm_up + NUM_WINDOWS * args.window,
                num_train_epochs=20,
                learning_rate=5e-5,
                bf16=on_gpu(args),
                use_cpu=not on_gpu(args),
                save_strategy="no",
                report_to="none",
                logging_steps=1000,
                disable_tqdm=True,
            ),
            train_dataset=data,  # type: ignore[arg-type]
            data_collator=DataCollatorWithPadding(tokenizer),
            callbacks=[Clock()],
        ).train()
    return summarise(times, args.window) | peak(args, before)


def read_pairs(path: Path, limit: int) -> list[tuple[str, str, int]]:
    with path.open(encoding="utf-8", newline="") as file:
        lines = csv.DictReader(file, delimiter="\t")
        return [
            (row["sentence1"], row["sentence2"], int(float(row["is_duplicate"])))
            for row, _ in zip(lines, range(limit), strict=False)
        ]


if __name__ == "__main__":
    main()
