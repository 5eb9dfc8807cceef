"""Rows of tasks become training and dev rows, drawn from a seed.

Every class keeps its share on both sides (of scores, every fifth of them), and rows that say the
same, but for case, punctuation and the order of a pair, stay on one side, in all tasks.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

NUM_BANDS = 5
"""Parts that scores are sorted into, to draw from each."""


def choose_fraction(num_rows: int) -> float:
    """Return the part of the rows to hold out: more of few, so that dev has some."""
    return 0.1 if num_rows >= 500 else 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Rows of a task that dev rows are drawn from."""

    strata: Sequence[Any]
    """What is to keep its share on both sides, of each row."""
    fingerprints: npt.NDArray[np.uint64]
    """Of each row; rows that are alike have the same, in whichever task."""
    fraction: float


def draw_dev(pools: Sequence[Pool], seed: int) -> list[npt.NDArray[np.bool_]]:
    """Return which rows of each pool are dev: of each stratum about its fraction, or a little more.

    What is dev in one pool is dev in all, or the encoder would learn dev texts of one task with
    another's labels. A stratum of two different texts or more has some on either side, unless
    another pool has its texts in strata as small.
    """
    strata: dict[tuple[int, Any], dict[int, int]] = {}  # rows of each text, by pool and stratum
    for place, pool in enumerate(pools):
        found = np.unique(pool.fingerprints, return_index=True, return_counts=True)
        for text, first, count in zip(*(part.tolist() for part in found), strict=True):
            # A text belongs where its first row does, whatever its doubles are labelled.
            strata.setdefault((place, pool.strata[first]), {})[text] = count
    ranked = {key: sorted(rows, key=lambda text: _rank(text, seed)) for key, rows in strata.items()}
    kept = {texts[-1] for texts in ranked.values()}  # so that training has some of each
    chosen: set[int] = set()
    # Small strata first: large ones are then filled up to their share, and few get more.
    for key in sorted(ranked, key=lambda key: (len(ranked[key]), key[0], str(key[1]))):
        rows = strata[key]
        wanted = max(1, round(pools[key[0]].fraction * sum(rows.values())))
        taken = sum(count for text, count in rows.items() if text in chosen)
        for text in ranked[key]:
            if taken >= wanted:
                break
            if text in chosen or text in kept:
                continue
            if taken and taken + rows[text] > 1.5 * wanted:
                continue  # a text that stands there very often would be most of dev
            chosen.add(text)
            taken += rows[text]
    drawn = np.array(sorted(chosen), np.uint64)
    return [np.isin(pool.fingerprints, drawn) for pool in pools]


def _rank(text: int, seed: int) -> bytes:
    """Return a text's place in the draw, which is the same whatever stands beside it."""
    return hashlib.blake2b(f"{seed} {text}".encode(), digest_size=8).digest()


def bands(scores: Sequence[float]) -> list[int]:
    """Sort scores into parts of about equal size, to be drawn from like classes."""
    edges = np.quantile(scores, np.linspace(0, 1, NUM_BANDS + 1)[1:-1])
    return [int(band) for band in np.searchsorted(edges, scores, side="right")]
