"""What the written-out peers share: BertModel with a linear head per task, batches made ahead."""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import torch
import torch.nn.functional as F
from steps import on_gpu
from torch import Tensor, nn

FILES = {
    "sst": ("ids-sst-train.csv", ("sentence",), "sentiment"),
    "quora": ("quora-train.csv", ("sentence1", "sentence2"), "is_duplicate"),
    "sts": ("sts-train.csv", ("sentence1", "sentence2"), "similarity"),
}
"""Each task's file, text columns and label."""
NUM_OUTPUTS = {"sst": 5, "quora": 1, "sts": 1}
NUM_BATCHES = 64
"""Batches of each task, on the device before the clock starts; they come round again."""

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sst": lambda outputs, labels: F.cross_entropy(outputs.float(), labels.long()),
    "quora": lambda outputs, labels: F.binary_cross_entropy_with_logits(
        outputs.float().squeeze(-1), labels
    ),
    "sts": lambda outputs, labels: F.mse_loss(outputs.float().squeeze(-1), labels / 5),
}


class Peer(nn.Module):
    """transformers' BertModel, mean pooling, one linear layer per task."""

    def __init__(self, encoder: Path, args: argparse.Namespace):
        super().__init__()
        from transformers import BertModel
        from transformers.utils import logging

        logging.set_verbosity_error()  # of a pooler it does not need
        self.bert = BertModel.from_pretrained(str(encoder), add_pooling_layer=False)
        width = self.bert.config.hidden_size
        self.heads = nn.ModuleDict({task: nn.Linear(width, n) for task, n in NUM_OUTPUTS.items()})
        self.bf16 = on_gpu(args)
        self.to(args.device).train()

    def autocast(self) -> AbstractContextManager[object]:
        return torch.autocast("cuda", torch.bfloat16, enabled=self.bf16)

    def encode(self, inputs: dict[str, Tensor], words: Tensor | None = None) -> Tensor:
        """Return the mean of the real tokens' vectors; `words` stand in for the embedded ids."""
        given = dict(inputs)
        if words is not None:
            given["inputs_embeds"] = words
            del given["input_ids"]
        hidden = self.bert(**given).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1)
        return (hidden * mask).sum(dim=1) / mask.sum(dim=1)

    def read(self, task: str, vectors: Tensor) -> Tensor:
        outputs: Tensor = self.heads[task](F.dropout(vectors, 0.1, self.training))
        return outputs

    def optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=5e-5, weight_decay=0.01, fused=True)


def read_rows(data: Path, task: str, limit: int) -> list[tuple[tuple[str, ...], float]]:
    """Return a task's first examples: texts and label."""
    name, texts, label = FILES[task]
    with (data / name).open(encoding="utf-8", newline="") as file:
        lines = itertools.islice(csv.DictReader(file, delimiter="\t"), limit)
        return [(tuple(line[text] for text in texts), float(line[label])) for line in lines]


def make_batches(
    encoder: Path, task: str, batch_size: int, args: argparse.Namespace
) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Put batches on the device, each padded to its longest, and go round them for ever."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(encoder))
    rows = read_rows(args.data, task, NUM_BATCHES * batch_size)
    batches = []
    for start in range(0, len(rows) - batch_size + 1, batch_size):
        texts, labels = zip(*rows[start : start + batch_size], strict=True)
        inputs = tokenizer(
            *map(list, zip(*texts, strict=True)),
            padding=True,
            truncation=True,
            max_length=128,
            return_tensors="pt",
        )
        on_device = {key: value.to(args.device) for key, value in inputs.items()}
        batches.append((on_device, torch.tensor(labels, device=args.device)))
    if not batches:
        raise SystemExit(f"{FILES[task][0]} has fewer than {batch_size} rows; take smaller batches")
    return itertools.cycle(batches)
