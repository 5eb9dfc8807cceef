"""Time training on the CPU, beside transformers' Trainer.

    python benchmarks/cpu_train.py [--encoder packaged] [--batch-size 32] [--updates 8]

Both train the same BERT with pooler and one linear layer on the sample's paraphrase pairs, in
batches of the same size in a random order, padded by the batch, with dropout, clipping and
AdamW. Texts are tokenised before. The sides take turns, each time from the start; the first
update of a turn is thrown away.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from itertools import islice, pairwise
from pathlib import Path

import records

from plait.config import read_recipe
from plait.data import Tokenizer
from plait.data.loading import load_data
from plait.model.sources import find_encoder
from plait.training.build import build, build_stage
from plait.training.loop import TrainState, run_stage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--encoder", default="packaged")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--updates", type=int, default=8, help="timed updates a turn")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, help="write the record here, not to benchmarks/records")
    args = parser.parse_args()
    sides = {
        "Trainer": lambda: time_trainer(args.encoder, args.batch_size, args.updates),
        "plait fp32": lambda: time_plait(args.encoder, args.batch_size, args.updates, "fp32"),
        "plait bf16": lambda: time_plait(args.encoder, args.batch_size, args.updates, "bf16"),
    }
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.repeats):
        for name, side in sides.items():
            rates[name] += [args.batch_size / seconds for seconds in side()]
            print(f"{name:12} {records.spread(rates[name])['median']:8.1f} rows/s", flush=True)
    figures = {name: records.spread(values) for name, values in rates.items()}
    peer = figures.pop("Trainer")
    records.write(
        "cpu_train",
        args.out,
        settings={
            "encoder": args.encoder,
            "batch_size": args.batch_size,
            "updates": args.updates,
            "turns": args.repeats,
        },
        unit="rows/s",
        best_peer="Trainer",
        peers={"Trainer": peer},
        plait=figures,
        ratios={name: round(f["median"] / peer["median"], 2) for name, f in figures.items()},
        # The default precision of training on a CPU is fp32, which is held to both goals.
        goals={"plait fp32": 1.3, "plait fp32 (the default)": 2.0},
    )


def recipe(encoder: str, batch_size: int, precision: str):
    settings = [f"encoder.source={encoder}", "encoder.pooling=cls-pooler", "device=cpu"]
    settings += [f"precision={precision}", f"train.batch_size={batch_size}"]
    settings += ['train.tasks=["paraphrase"]', "tasks.paraphrase.head.name=linear"]
    return read_recipe("demo", settings)


def time_plait(encoder: str, batch_size: int, updates: int, precision: str) -> list[float]:
    """Return the seconds of each update."""
    config = recipe(encoder, batch_size, precision)
    parts = build(config)
    stage = build_stage(parts, 0, load_data(config, parts.tokenizer, "train"))
    parts.model.train()
    moments = []
    for record in islice(run_stage(stage, TrainState()), updates + 1):
        if record.num_examples == batch_size:
            moments.append(time.perf_counter())
    return differences(moments)


def time_trainer(encoder: str, batch_size: int, updates: int) -> list[float]:
    """Return the seconds of each update."""
    import transformers

    logging.getLogger("transformers").setLevel(logging.ERROR)
    files = find_encoder(encoder)
    transformers.set_seed(0)
    model = transformers.BertForSequenceClassification.from_pretrained(files.folder, num_labels=2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(files.folder)
    config = recipe(encoder, batch_size, "fp32")
    rows = tokenised(config, Tokenizer.from_file(files.tokenizer))
    moments = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            moments.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=batch_size,
            max_steps=updates + 1,
            learning_rate=1e-4,
            weight_decay=0.01,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            dataloader_drop_last=True,
        )
        transformers.Trainer(
            model=model,
            args=settings,
            train_dataset=rows,
            processing_class=tokenizer,
            callbacks=[Clock()],
        ).train()
    return differences(moments)


def tokenised(config, tokenizer: Tokenizer) -> list[dict[str, object]]:
    """Return plait's own inputs as rows for a Trainer's collator, which pads them."""
    import torch

    from plait.inference.build import build_collator

    dataset = load_data(config, tokenizer, "train")["paraphrase"]
    collator, spec = build_collator(config, tokenizer), config.tasks["paraphrase"]
    rows = []
    for i in range(len(dataset)):
        batch = collator(dataset, torch.tensor([i]), spec)
        rows.append(
            {
                "input_ids": batch.tokens.ids[0].tolist(),
                "token_type_ids": batch.tokens.types[0].tolist(),
                "attention_mask": batch.tokens.mask[0].long().tolist(),
                "labels": int(batch.labels[0]),
            }
        )
    return rows


def differences(moments: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(moments)]


if __name__ == "__main__":
    main()
