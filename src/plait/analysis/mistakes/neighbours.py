"""Mistakes become the training rows nearest to them, as the model itself sees texts.

A near row with another label may be mislabelled, or show what the model took the text for. The
texts of a pair are embedded one by one: two pairs are as near as their texts are on average, in the
order that suits better.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from plait.data import Dataset
    from plait.inference.predictor import SingleModel

    Texts = tuple[str, ...]
    Vectors = NDArray[np.float32]

CHUNK = 512
"""Training rows embedded at a time, so that memory does not grow with them."""

MOST = 20_000
"""Training rows looked at unless told otherwise; more are drawn from. Copies are always found."""


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A training row near another text."""

    row: int
    """Its number in the training set."""
    similarity: float
    """Cosine of the embeddings; of a pair, the mean of both."""
    is_copy: bool
    """Whether it says the same but for case, punctuation, spacing or the order of a pair."""


def find_nearest(
    predictor: SingleModel,
    queries: Dataset,
    train: Dataset,
    generator: np.random.Generator,
    *,
    own: Sequence[int] = (),
    count: int = 2,
    most: int = MOST,
    progress: Callable[[int, int], None] | None = None,
) -> list[list[Neighbour]]:
    """Return the training rows nearest to each query, the nearest first.

    Copies come before all others. Where queries are training rows themselves, `own` are their
    numbers, and none is its own neighbour. Of more than `most` training rows, so many are drawn;
    0 looks at all of them.
    """
    if not len(queries):
        return []
    wanted = _embed(predictor, queries.texts())
    chosen = _choose(train, queries, most, generator)
    total, done = int(chosen.sum()), 0
    found: list[list[Neighbour]] = [[] for _ in range(len(queries))]
    for rows, texts in _chunks(train, chosen):
        near = _similarity(wanted, _embed(predictor, texts))
        for query, best in enumerate(found):
            copies = train.fingerprints[rows] == queries.fingerprints[query]
            if own:
                near[query, np.array(rows) == own[query]] = -np.inf
            # A copy may differ in case or order, and yet is nearer than anything else.
            order = np.argsort(-(near[query] + 2 * copies), kind="stable")[:count]
            best += [
                Neighbour(rows[i], float(near[query, i]), bool(copies[i]))
                for i in order
                if np.isfinite(near[query, i])
            ]
            best.sort(key=lambda n: (not n.is_copy, -n.similarity, n.row))
            del best[count:]
        done += len(rows)
        if progress is not None:
            progress(done, total)
    return found


def _choose(
    train: Dataset, queries: Dataset, most: int, generator: np.random.Generator
) -> NDArray[np.bool_]:
    """Return which training rows to embed."""
    if not most or len(train) <= most:
        return np.ones(len(train), bool)
    chosen = np.isin(train.fingerprints, queries.fingerprints)
    chosen[generator.choice(len(train), most, replace=False)] = True
    return chosen


def _chunks(train: Dataset, chosen: NDArray[np.bool_]) -> Iterator[tuple[list[int], list[Texts]]]:
    rows = ((i, texts) for i, texts in enumerate(train.read_texts()) if chosen[i])
    while chunk := list(islice(rows, CHUNK)):
        yield [i for i, _ in chunk], [texts for _, texts in chunk]


def _embed(predictor: SingleModel, rows: Sequence[Texts]) -> Vectors:
    """Return vectors of length 1, [rows, texts, width]."""
    flat = predictor.embed([text for texts in rows for text in texts])
    flat /= np.maximum(np.linalg.norm(flat, axis=1, keepdims=True), 1e-12)
    return flat.reshape(len(rows), -1, flat.shape[1])


def _similarity(first: Vectors, second: Vectors) -> NDArray[np.float32]:
    """Return how near each row of the first is to each of the second, [first, second]."""
    straight = np.einsum("atw,btw->ab", first, second, optimize=True)
    turned = np.einsum("atw,btw->ab", first[:, ::-1], second, optimize=True)
    nearest: NDArray[np.float32] = np.maximum(straight, turned) / first.shape[1]
    return nearest
