"""Embed texts with a recipe's untrained encoder, and find the most similar rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from plait.data import ONE_TEXT, Collator, Dataset, Tokenizer
from plait.inference.build import choose_device
from plait.model.encoder import load_encoder, pool
from plait.model.inference import pack, why_not
from plait.model.sources import find_encoder
from plait.registry import load_plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from plait.config import RunConfig
    from plait.data.loading import Progress
    from plait.model.inference import Form
    from plait.model.interface import Encoder

BATCH = 64

BLOCK = 1 << 26
"""Scores computed at a time."""


def top_rows(
    score: Callable[[Tensor], Tensor], num_queries: int, num_rows: int, count: int
) -> tuple[Tensor, Tensor]:
    """Return the numbers and scores of the `count` best rows of each query, the best first.

    `score` maps numbers of queries [block] to scores [block, rows]. Both results are
    [queries, count] on the CPU, or fewer columns if there are fewer rows.
    """
    places, values = [], []
    for block in torch.arange(num_queries).split(max(1, BLOCK // num_rows)):
        best = score(block).topk(min(count, num_rows), dim=1)
        places.append(best.indices.cpu())
        values.append(best.values.cpu())
    return torch.cat(places), torch.cat(values)


def nearest_rows(
    vectors: Tensor, count: int, device: torch.device, what: str, progress: Progress | None
) -> tuple[Tensor, Tensor]:
    """Return for each vector the `count` others with the largest dot product, and the products."""
    vectors, total = vectors.to(device), len(vectors)

    def score(block: Tensor) -> Tensor:
        products = vectors[block] @ vectors.T
        products[torch.arange(len(block)), block] = -torch.inf  # the vector itself
        if progress is not None:
            progress(f"comparing {what}", int(block[-1]) + 1, total)
        return products

    return top_rows(score, total, total, min(count, total - 1))


class Embedder:
    """An encoder with its tokenizer, in fp32 or, with `fast`, in the fastest precision."""

    def __init__(self, config: RunConfig, *, fast: bool = False):
        settings = config.encoder
        load_plugins(config.plugins)  # a plugin may define the architecture
        files = find_encoder(settings.source, revision=settings.revision, sha256=settings.sha256)
        self.device = choose_device(config.device)
        encoder = load_encoder(files, architecture=settings.architecture)
        self.encoder: Encoder = encoder.to(self.device).eval()
        self.autocast = fast and self.device.type == "cuda"
        if self.device.type == "cpu":
            form: Form = "bf16" if fast and not why_not("bf16") else "fp32"
            first_only = settings.pooling != "mean"
            self.encoder = pack(self.encoder, form, first_only=first_only) or self.encoder
        self.tokenizer = Tokenizer.from_file(files.tokenizer)
        self.max_length, self.pooling = settings.max_length, settings.pooling

    def __call__(self, texts: Sequence[str], what: str, progress: Progress | None) -> Tensor:
        """Return the pooled vector of each text, [texts, width] fp32 on the CPU."""
        dataset = Dataset.from_texts([(text,) for text in texts], self.tokenizer, self.max_length)
        collator, done = Collator(self.tokenizer.layout, self.max_length), 0
        found = torch.zeros(len(texts), self.encoder.width)
        with (
            torch.inference_mode(),
            torch.autocast(self.device.type, torch.bfloat16, enabled=self.autocast),
        ):
            for rows, batch in collator.iterate(dataset, ONE_TEXT, BATCH):
                tokens = batch.to(self.device).tokens
                vectors = pool(self.encoder(tokens), tokens.mask, self.pooling)
                found[rows] = vectors.float().cpu()
                done += len(rows)
                if progress is not None:
                    progress(f"encoding {what}", done, len(texts))
        return found
