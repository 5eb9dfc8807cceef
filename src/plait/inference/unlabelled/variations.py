"""A task's training rows become new ones: some of their words give way to words like them.

The augmentation that TinyBERT's students are taught with (Jiao et al. 2020, Algorithm 1): each
word is replaced with some probability by one drawn from the nearest. There a masked language model
and GloVe say which words are near; here the recipe's encoder does, which is at hand, and words come
from the training texts themselves, so that they are of the task's kind. A row may mean something
else afterwards, and has no label: a teacher answers it (stage kind `distill`), or a person.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from torch.nn import functional as F

from plait.data import find_held_out, find_root
from plait.data.fingerprints import fingerprint, is_among
from plait.data.swaps import dress
from plait.errors import DataError
from plait.inference.frozen import Embedder, nearest_rows
from plait.inference.unlabelled.rows import find_known, read_training

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt

    from plait.analysis.check.rows import Progress
    from plait.config import RunConfig
    from plait.data.fingerprints import Hashes
    from plait.data.heldout import HeldOut

Row = tuple[str, ...]

WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")
"""Letters, with apostrophes between them."""

COMMON = 0.5
"""Of all running words, the share that the most frequent make up which stay: 'the', 'of', 'is' hold
a text together, and what is like them is seldom right in their place."""

FEWEST = 0.01
"""New rows among those made in a round, below which it is the last: short rows soon have nothing
new in them."""


@dataclass(frozen=True, slots=True)
class Variations:
    """Rows made of training rows, as many texts each as the task has."""

    rows: list[Row]
    num_rows: int
    """Training rows that they were made of, or could have been."""
    num_words: int
    """Different words that could give way to another."""
    held_out: int
    """Training rows left out, since dev or test has a text of theirs."""
    known: int
    """Rows made and left out, since a training file has them or an earlier round made them, or dev
    or test has a text of theirs."""
    missing: tuple[str, ...] = ()
    """Dev and test files that are not there, whose texts could not be left out."""


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
    """Make `count` new rows of a task's training rows, as many as those are if not given.

    Each word that can is replaced with the probability `share`, at least one, by one of the
    `neighbours` nearest; of a pair one text changes. All rows have their turn before one has
    another. `reading` hears of bytes, `progress` of words and rows.
    """
    embedder = Embedder(config, fast=True)
    every = read_training(config, task, embedder.tokenizer, data, reading)
    root = find_root(config.data, data)
    held_out = find_held_out(config, root)
    columns = [pa.array(column, pa.string()) for column in zip(*every, strict=True)]
    kept = ~held_out.has_rows(columns, by_text=True)
    rows = [row for row, is_kept in zip(every, kept, strict=True) if is_kept]
    words = find_words(text for row in rows for text in row)
    if len(words) < 2:
        raise DataError(
            f"task {task!r} has {len(rows)} training rows that dev and test have not, with "
            f"{len(words)} words that could give way to another: too few"
        )
    vectors = F.normalize(embedder(words, f"words of {task}", progress), dim=1)
    nearest, _ = nearest_rows(vectors, neighbours, embedder.device, "words", progress)
    likes = {
        word: [words[place] for place in places]
        for word, places in zip(words, nearest.tolist(), strict=True)
    }
    wanted = len(rows) if count is None else count
    taken, known = find_known(config, task, root), 0
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
        raise DataError(f"no new row could be made of the {len(rows)} training rows of {task!r}")
    return Variations(made, len(rows), len(words), int((~kept).sum()), known, held_out.missing)


def _sift(
    rows: Sequence[Row], taken: Hashes, held_out: HeldOut
) -> tuple[npt.NDArray[np.int64], int, Hashes]:
    """Return the places of rows that are new, each once, how many are not, and all prints."""
    columns = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
    if not columns:
        return np.empty(0, np.int64), 0, np.empty(0, np.uint64)
    prints = fingerprint(columns)
    there = is_among(prints, taken) | held_out.has_rows(columns, by_text=True)
    _, first = np.unique(prints, return_index=True)
    return np.sort(first[~there[first]]), int(there.sum()), prints


def find_words(texts: Iterable[str]) -> list[str]:
    """Return the words that may give way, in small letters, in the order they are met."""
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
    """Return a row in which words of one text have given way to some like them; None without any.

    A word put in another's place is written in its case.
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
