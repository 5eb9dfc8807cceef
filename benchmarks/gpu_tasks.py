"""Time three tasks in turn on a GPU beside sentence-transformers' trainer, task by task alike.

    python benchmarks/gpu_tasks.py --data DIR --tokenizer FILE [--shape e5-small] [--batch-size 32]

A batch of SST (single sentences), of Quora and of STS (pairs encoded apart), an update each,
round and round, bf16: five encoder passes of a batch in a round on both sides. Heads: a linear
layer for SST, where the trainer has BatchHardTripletLoss, which learns from single labelled
sentences; softmax over u, v, |u-v| for Quora; the cosine's squared error for STS. A step is
the mean of a round's three updates. The trainer tokenises as it goes, plait beforehand:
`--workers` lets it do so in processes of its own. It needs the package `datasets`.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from encoders import SHAPES, write_encoder
from peers import read_rows
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

TASKS = {
    "sst": {"head": "linear", "loss": "cross-entropy"},
    "quora": {
        "inputs": "apart",
        "head": {"name": "linear", "dropout": 0.0, "features": ["u", "v", "|u-v|"]},
        "loss": "cross-entropy",
    },
    "sts": {
        "inputs": "apart",
        "head": "cosine",
        "loss": {"name": "cosine-mse", "map": "plain"},
    },
}
PEER_WARM_UP = 21
"""Steps, seven rounds."""


def main() -> None:
    # Windows of whole rounds.
    parser = begin(__doc__, shape="e5-small", batch_size=32, window=42)
    parser.add_argument("--workers", type=int, default=0, help="processes that tokenise for it")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        encoder = write_encoder(args.shape, args.tokenizer, Path(folder))
        packages = ("transformers", "sentence-transformers", "accelerate", "datasets")
        record = describe("gpu-tasks", args, *packages) | {"plait": time_ours(args, encoder)}
        if args.peer:
            peer = time_trainer(args, encoder)
            record["peers"] = {"SentenceTransformerTrainer": peer}
            record["ratio"] = peer["step_ms"] / record["plait"]["step_ms"]
    publish(record, args)


def time_ours(args: argparse.Namespace, encoder: Path) -> dict[str, float]:
    train = {
        "schedule": "round-robin",
        "batch_size": args.batch_size,
        "epochs": 20,
        "max_steps": enough_steps(args),
    }
    settings = run_settings(args, encoder) | {"tasks": TASKS, "train": train}
    return time_plait(read_recipe("course", extra=settings), args)


def time_trainer(args: argparse.Namespace, encoder: Path) -> dict[str, float]:
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.sentence_transformer.training_args import MultiDatasetBatchSamplers
    from transformers import TrainerCallback

    before = clear(args)
    model = SentenceTransformer(str(encoder), device=args.device)
    model.max_seq_length = 128
    width = SHAPES[args.shape].hidden_size
    warm_up = min(PEER_WARM_UP, args.warm_up)
    times: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, _settings: Any, state: Any, _control: Any, **_: Any) -> None:
            if state.global_step >= warm_up and (state.global_step - warm_up) % args.window == 0:
                times.append(tick(args))

    with tempfile.TemporaryDirectory() as folder:
        SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(
                folder,
                per_device_train_batch_size=args.batch_size,
                max_steps=warm_up + NUM_WINDOWS * args.window,
                learning_rate=5e-5,
                bf16=on_gpu(args),
                use_cpu=not on_gpu(args),
                multi_dataset_batch_sampler=MultiDatasetBatchSamplers.ROUND_ROBIN,
                dataloader_num_workers=args.workers,
                save_strategy="no",
                report_to="none",
                logging_steps=1000,
                disable_tqdm=True,
            ),
            train_dataset=make_datasets(args.data),
            loss={
                "sst": losses.BatchHardTripletLoss(model),
                "quora": losses.SoftmaxLoss(model, width, num_labels=2),
                "sts": losses.CosineSimilarityLoss(model),
            },
            callbacks=[Clock()],
        ).train()
    return summarise(times, args.window) | peak(args, before)


def make_datasets(data: Path) -> dict[str, Any]:
    """Turn each task's rows into columns: the texts, then the label."""
    from datasets import Dataset

    made = {}
    for task in TASKS:
        texts, labels = zip(*read_rows(data, task, 20_000), strict=True)
        columns = {f"text{i}": list(column) for i, column in enumerate(zip(*texts, strict=True))}
        label = [x / 5 for x in labels] if task == "sts" else [int(x) for x in labels]
        made[task] = Dataset.from_dict(columns | {"label": label})
    return made


if __name__ == "__main__":
    main()
