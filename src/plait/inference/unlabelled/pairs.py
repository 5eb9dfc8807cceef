"""A task's training texts become new pairs: of texts that are alike, and in no file together.

They have no label. A teacher may answer them (stage kind `distill`), or a person. Which texts are
alike is told by the recipe's encoder as it is, every text being set against every other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch
from torch.nn import functional as F

from plait.data import find_held_out, find_root
from plait.data.fingerprints import is_among, join_keys, text_keys
from plait.errors import DataError, UsageError
from plait.inference.frozen import Embedder, nearest_rows
from plait.inference.unlabelled.rows import find_known, read_training

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from plait.analysis.check.rows import Progress
    from plait.config import RunConfig


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of texts, the most alike first."""

    texts: list[tuple[str, str]]
    similarity: npt.NDArray[np.float32]
    """Cosine of the two vectors."""
    num_texts: int
    """Training texts that were set against each other, each once."""
    held_out: int
    """Training texts left out, since dev or test has them."""
    known: int
    """Pairs left out, since a training file, dev or test has them."""
    missing: tuple[str, ...] = ()
    """Dev and test files that are not there, whose texts could not be left out."""


def find_pairs(
    config: RunConfig,
    task: str,
    *,
    data: str | None = None,
    neighbours: int = 5,
    least: float = -1.0,
    count: int | None = None,
    reading: Progress | None = None,
    progress: Progress | None = None,
) -> Pairs:
    """Pair each training text of a task with the `neighbours` most like it.

    `least` is the lowest similarity of a pair; of more than `count`, as many are drawn. `reading`
    hears of bytes, `progress` of texts.
    """
    if not config.tasks[task].is_pair:
        raise UsageError(f"task {task!r} has one text a row, and nothing to pair")
    embedder = Embedder(config, fast=True)
    rows = read_training(config, task, embedder.tokenizer, data, reading)
    every = pa.array([text for row in rows for text in row], pa.string())
    keys, first = np.unique(text_keys(every), return_index=True)
    order = np.argsort(first)  # as they stand in the files
    keys, first = keys[order], first[order]
    root = find_root(config.data, data)
    held_out = find_held_out(config, root)
    own = ~is_among(keys, held_out.texts)
    texts, keys = every.take(first[own]).to_pylist(), keys[own]
    if len(texts) < 2:
        raise DataError(f"task {task!r} has {len(texts)} texts that dev and test have not: no pair")
    vectors = F.normalize(embedder(texts, f"texts of {task}", progress), dim=1)
    one, other, similarity = _pair(vectors, neighbours, embedder.device, progress)
    fitting = similarity >= least
    one, other, similarity = one[fitting], other[fitting], similarity[fitting]
    prints = join_keys(keys[one], keys[other])
    known = is_among(prints, find_known(config, task, root)) | is_among(prints, held_out.pairs)
    chosen = np.flatnonzero(~known)
    if count is not None and len(chosen) > count:
        drawn = np.random.default_rng(config.seed).choice(len(chosen), count, replace=False)
        chosen = np.sort(chosen[drawn])
    chosen = chosen[np.argsort(-similarity[chosen], kind="stable")]
    return Pairs(
        [(texts[a], texts[b]) for a, b in zip(one[chosen], other[chosen], strict=True)],
        similarity[chosen],
        len(texts),
        int((~own).sum()),
        int(known.sum()),
        held_out.missing,
    )


def _pair(
    vectors: Tensor, neighbours: int, device: torch.device, progress: Progress | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return pairs of rows, the lower number first, each once, and their products."""
    nearest, products = nearest_rows(vectors, neighbours, device, "texts", progress)
    own = torch.arange(len(nearest))[:, None].expand_as(nearest)
    found = torch.stack([own, nearest], dim=-1).reshape(-1, 2).sort(dim=1).values.numpy()
    _, places = np.unique(found[:, 0] * len(vectors) + found[:, 1], return_index=True)
    one, other = found[places].T
    return one, other, products.reshape(-1).numpy()[places]
