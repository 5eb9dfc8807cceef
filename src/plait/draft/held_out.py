"""Rows of a task become training and dev rows, drawn from a seed.

Every class keeps its share on both sides (of scores, every fifth of them), and rows that say the
same, but for case, punctuation and the order of a pair, stay on one side.
"""

from __future__ import annotations

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


def draw_dev(
    strata: Sequence[Any],
    fingerprints: npt.NDArray[np.uint64],
    fraction: float,
    seed: Sequence[int],
) -> npt.NDArray[np.bool_]:
    """Return which rows are dev: of each stratum about that fraction, rows that are alike together.

    A stratum of two different rows or more has at least one on either side.
    """
    generator = np.random.default_rng(seed)
    _, first, group = np.unique(fingerprints, return_index=True, return_inverse=True)
    sizes = np.bincount(group)
    members: dict[Any, list[int]] = {}
    # A group belongs where its first row does, whatever its doubles are labelled.
    for number in np.argsort(first):
        members.setdefault(strata[first[number]], []).append(int(number))
    chosen = np.zeros(len(sizes), bool)
    for stratum in sorted(members, key=str):
        groups = generator.permutation(members[stratum])
        wanted = max(1, round(fraction * int(sizes[groups].sum())))
        taken = 0
        for number in groups[:-1]:  # the last stays, so that training has some
            if taken >= wanted:
                break
            if taken and taken + sizes[number] > 1.5 * wanted:
                continue  # a text that stands there very often would be most of dev
            chosen[number] = True
            taken += int(sizes[number])
    return chosen[group]


def bands(scores: Sequence[float]) -> list[int]:
    """Sort scores into parts of about equal size, to be drawn from like classes."""
    edges = np.quantile(scores, np.linspace(0, 1, NUM_BANDS + 1)[1:-1])
    return [int(band) for band in np.searchsorted(edges, scores, side="right")]
