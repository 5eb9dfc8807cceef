"""Make rows without labels from training rows: pairs of similar texts, and texts with other words.

A teacher answers them (stage kind `distill`), or a person.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch
from torch.nn import functional as F

from plait.data import find_held_out, find_root
from plait.data.fingerprints import fingerprint, is_among, join_keys, text_keys
from plait.data.heldout import read_bare
from plait.data.loading import load_data
from plait.data.swaps import dress
from plait.errors import DataError, UsageError
from plait.inference.frozen import Embedder, nearest_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt
    from torch import Tensor

    from plait.config import RunConfig
    from plait.data import Tokenizer
    from plait.data.fingerprints import Hashes
    from plait.data.heldout import HeldOut
    from plait.data.loading import Progress

Row = tuple[str, ...]

WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
"""Letters, with apostrophes between them."""

COMMON = 0.5
"""Share of all running words that stay, the most frequent: 'the', 'of' and 'is' hold a text
together, and similar words seldom fit in their place."""

FEWEST = 0.01
"""Share of new rows in a round below which it is the last: short rows soon give nothing new."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs of texts, the most similar first."""

    texts: list[tuple[str, str]]
    similarity: npt.NDArray[np.float32]
    """Cosine of the two vectors."""
    num_texts: int
    """Distinct training texts that were compared."""
    held_out: int
    """Training texts left out because dev or test has them."""
    known: int
    """Pairs left out because a training file, dev or test has them."""
    missing: tuple[str, ...] = ()
    """Missing dev and test files, whose texts could not be left out."""


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
    """Pair each training text of a task with the `neighbours` most similar ones.

    `least` is the lowest similarity of a pair; of more than `count` pairs, `count` are drawn.
    `reading` counts bytes and `progress` texts.
    """
    if not config.tasks[task].is_pair:
        raise UsageError(f"task {task!r} has one text a row, and nothing to pair")
    embedder = Embedder(config, fast=True)
    rows = _read_training(config, task, embedder.tokenizer, data, reading)
    every = pa.array([text for row in rows for text in row], pa.string())
    keys, first = np.unique(text_keys(every), return_index=True)
    order = np.argsort(first)  # as they stand in the files
    keys, first = keys[order], first[order]
    root = find_root(config.data, data)
    held_out = find_held_out(config, root)
    own = ~is_among(keys, held_out.texts)
    texts, keys = every.take(first[own]).to_pylist(), keys[own]
    if len(texts) < 2:
        raise DataError(f"task {task!r} has {len(texts)} texts outside dev and test: no pair")
    vectors = F.normalize(embedder(texts, f"texts of {task}", progress), dim=1)
    one, other, similarity = _pair(vectors, neighbours, embedder.device, progress)
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


# --- words ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variations:
    """Rows made from training rows by replacing words."""

    rows: list[Row]
    num_rows: int
    """Training rows that could be changed."""
    num_words: int
    """Distinct words that could be replaced."""
    held_out: int
    """Training rows left out because dev or test has one of their texts."""
    known: int
    """New rows left out because they exist already, or dev or test has one of their texts."""
    missing: tuple[str, ...] = ()
    """Missing dev and test files, whose texts could not be left out."""


def vary_rows(
    config: RunConfig,
    task: str,
    *,
    data: str | None = None,
    count: int | None = None,
    share: float = 0.4,
    neighbours: int = 15,
    reading: Progress | None = None,
    progress: Progress | None = None,
) -> Variations:
    """Make `count` new rows from a task's training rows; by default as many as there are.

    This is the augmentation of TinyBERT (Jiao et al. 2020, Algorithm 1). There, a masked language
    model and GloVe propose words; here they are words of the training texts with similar vectors
    of the recipe's encoder. Each word is replaced with probability `share`, at least one per row,
    by one of its `neighbours`; of a pair, one text changes. Every row is used before one is used
    again. A row may mean something else afterwards, so it has no label. `reading` counts bytes,
    `progress` words and rows.
    """
    embedder = Embedder(config, fast=True)
    every = _read_training(config, task, embedder.tokenizer, data, reading)
    root = find_root(config.data, data)
    held_out = find_held_out(config, root)
    columns = [pa.array(column, pa.string()) for column in zip(*every, strict=True)]
    kept = ~held_out.has_rows(columns, by_text=True)
    rows = [row for row, is_kept in zip(every, kept, strict=True) if is_kept]
    words = find_words(text for row in rows for text in row)
    if len(words) < 2:
        raise DataError(
            f"task {task!r} has {len(rows)} training rows that are not in dev or test, with "
            f"{len(words)} words that could be replaced: too few"
        )
    vectors = F.normalize(embedder(words, f"words of {task}", progress), dim=1)
    nearest, _ = nearest_rows(vectors, neighbours, embedder.device, "words", progress)
    likes = {
        word: [words[place] for place in places]
        for word, places in zip(words, nearest.tolist(), strict=True)
    }
    wanted = len(rows) if count is None else count
    taken, known = _find_known(config, task, root), 0
    generator = np.random.default_rng(config.seed)
    made: list[Row] = []
    while len(made) < wanted:
        missing = wanted - len(made)
        order = generator.permutation(len(rows))[: 2 * missing + 100]  # some will not be new
        new = [row for i in order if (row := vary(rows[i], likes, share, generator))]
        fresh, there, prints = _sift(new, taken, held_out)
        made += [new[i] for i in fresh[:missing]]
        known += there
        taken = np.union1d(taken, prints)
        if progress is not None:
            progress("making rows", len(made), wanted)
        if len(fresh) < FEWEST * len(order):
            break
    if not made:
        raise DataError(f"no new row could be made from the {len(rows)} training rows of {task!r}")
    return Variations(made, len(rows), len(words), int((~kept).sum()), known, held_out.missing)


def _sift(
    rows: Sequence[Row], taken: Hashes, held_out: HeldOut
) -> tuple[npt.NDArray[np.int64], int, Hashes]:
    """Return the places of new rows, the number of others, and the fingerprints of all."""
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    if not columns:
        return np.empty(0, np.int64), 0, np.empty(0, np.uint64)
    prints = fingerprint(columns)
    there = is_among(prints, taken) | held_out.has_rows(columns, by_text=True)
    _, first = np.unique(prints, return_index=True)
    return np.sort(first[~there[first]]), int(there.sum()), prints


def find_words(texts: Iterable[str]) -> list[str]:
    """Return the words that may be replaced, in lower case, in order of appearance."""
    counts = Counter(word for text in texts for word in WORD.findall(text.lower()))
    most = running = 0
    for _, most in counts.most_common():
        running += most
        if running > COMMON * counts.total():
            break
    return [word for word, times in counts.items() if times <= most]


def vary(
    row: Row, likes: Mapping[str, Sequence[str]], share: float, generator: np.random.Generator
) -> Row | None:
    """Return a row with words of one text replaced by similar ones; None if it has none.

    The new word is written in the old one's case.
    """
    found = [[m for m in WORD.finditer(text) if m[0].lower() in likes] for text in row]
    able = [column for column, matches in enumerate(found) if matches]
    if not able:
        return None
    column = able[generator.integers(len(able))]
    matches = found[column]
    drawn = generator.random(len(matches)) < share
    drawn[generator.integers(len(matches))] |= not drawn.any()
    text, pieces, done = row[column], [], 0
    for match in (m for m, is_drawn in zip(matches, drawn, strict=True) if is_drawn):
        near = likes[match[0].lower()]
        word = near[int(generator.integers(len(near)))]
        pieces += [text[done : match.start()], dress(word, match[0])]
        done = match.end()
    varied = "".join([*pieces, text[done:]])
    return (*row[:column], varied, *row[column + 1 :])


# --- files ------------------------------------------------------------------------------


def _read_training(
    config: RunConfig, task: str, tokenizer: Tokenizer, data: str | None, reading: Progress | None
) -> list[tuple[str, ...]]:
    """Return the texts of a task's training rows."""
    spec = config.tasks[task]
    if not spec.train:
        raise UsageError(f"tasks.{task}.train names no files to make new texts from")
    # Without augmentations, whose rows are made from the same texts.
    bare = config.model_copy(
        update={"tasks": config.tasks | {task: spec.model_copy(update={"augment": ()})}}
    )
    rows = load_data(bare, tokenizer, "train", data=data, tasks=[task], progress=reading)
    return list(rows[task].read_texts())


def _find_known(config: RunConfig, task: str, root: Path | None) -> Hashes:
    """Return the sorted fingerprints of all rows of the training files, drawn or not."""
    spec = config.tasks[task]
    readings = (read_bare(task, spec, "train", file, root, config.seed) for file in spec.train)
    found = [fingerprint(rows.texts) for reading in readings for rows in reading.rows()]
    return np.unique(np.concatenate(found))
