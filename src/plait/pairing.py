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

from plait.check.embedding import Embedder
from plait.data import find_held_out, find_root
from plait.data.fingerprints import fingerprint, is_among, join_keys, text_keys
from plait.data.heldout import read_bare
from plait.errors import DataError, UsageError
from plait.training.build import load_data

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt
    from torch import Tensor

    from plait.check.rows import Progress
    from plait.config import RunConfig
    from plait.data.fingerprints import Hashes

BLOCK = 1 << 26
"""Similarities that are looked at together."""


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
    spec = config.tasks[task]
    if not spec.is_pair:
        raise UsageError(f"task {task!r} has one text a row, and nothing to pair")
    if not spec.train:
        raise UsageError(f"tasks.{task}.train names no files, whose texts could be paired")
    embedder = Embedder(config, fast=True)
    # What would be added to the files' rows is made of their texts.
    bare = config.model_copy(
        update={"tasks": config.tasks | {task: spec.model_copy(update={"augment": ()})}}
    )
    rows = load_data(bare, embedder.tokenizer, "train", data=data, tasks=[task], progress=reading)[
        task
    ]
    every = pa.array([text for row in rows.read_texts() for text in row], pa.string())
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
    one, other, similarity = _find_nearest(vectors, neighbours, embedder.device, progress)
    fitting = similarity >= least
    one, other, similarity = one[fitting], other[fitting], similarity[fitting]
    prints = join_keys(keys[one], keys[other])
    known = is_among(prints, _find_known(config, task, root)) | is_among(prints, held_out.pairs)
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


def _find_known(config: RunConfig, task: str, root: Path | None) -> Hashes:
    """Return the fingerprints of all pairs of the training files, drawn or not, rising."""
    spec = config.tasks[task]
    readings = (read_bare(task, spec, "train", file, root, config.seed) for file in spec.train)
    found = [fingerprint(rows.texts) for reading in readings for rows in reading.rows()]
    return np.unique(np.concatenate(found))


def _find_nearest(
    vectors: Tensor, neighbours: int, device: torch.device, progress: Progress | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Return pairs of rows, the lower number first, each once, and their products."""
    vectors = vectors.to(device)
    total, most = len(vectors), min(neighbours, len(vectors) - 1)
    pairs, products = [], []
    block = max(1, BLOCK // total)
    for begin in range(0, total, block):
        some = torch.arange(begin, min(begin + block, total), device=device)
        cosines = vectors[some] @ vectors.T
        cosines[some - begin, some] = -torch.inf  # itself
        best = cosines.topk(most, dim=1)
        both = torch.stack([some[:, None].expand_as(best.indices), best.indices], dim=-1)
        pairs.append(both.reshape(-1, 2).sort(dim=1).values.cpu())
        products.append(best.values.reshape(-1).cpu())
        if progress is not None:
            progress("comparing texts", begin + len(some), total)
    found = torch.cat(pairs).numpy()
    _, places = np.unique(found[:, 0] * total + found[:, 1], return_index=True)
    one, other = found[places].T
    return one, other, torch.cat(products).numpy()[places]
