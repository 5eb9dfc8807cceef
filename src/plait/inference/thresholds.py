"""How sure an answer must be to be given: a wanted accuracy becomes a confidence threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plait.errors import UsageError
from plait.inference.intervals import wilson_bound

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from plait.inference.intervals import Floats

CERTAINTY = 0.95
"""How certain the lower bound of an accuracy is."""
STEPS = 20
"""Thresholds that are tried, each with as many more of the rows."""
LEAST_ROWS = 20
"""Rows that the first of them has, where there are so many."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """How sure an answer must be to be given, and what came of that where it was chosen."""

    value: float
    """Answers less confident than this are for review."""
    accuracy: float
    """Of the rows that are answered."""
    bound: float
    """What that accuracy is at least, with a certainty of 95%."""
    num_answered: int
    num_rows: int

    @property
    def share(self) -> float:
        """Part of the rows that are answered."""
        return self.num_answered / self.num_rows


def choose_threshold(confidences: ArrayLike, right: ArrayLike, accuracy: float) -> Threshold:
    """Return the smallest threshold down to which the answered rows are accurate enough.

    Enough is a lower bound of their accuracy (`wilson_bound`), not the accuracy itself, so that
    a few rows that happen to be right do not count for much. The best of many thresholds would
    often be a lucky one, and its bound would promise too much. So they are tried in an order that
    no label has a say in, from the surest rows down, and the first that fails ends it: a promise
    is false only where the first test that ought to fail does not (Maurer et al., 1995).
    """
    if not 0 < accuracy < 1:
        raise UsageError(f"an accuracy lies between 0 and 1, and {accuracy:g} does not")
    sure, hits = np.asarray(confidences, dtype=np.float64), np.asarray(right, dtype=bool)
    if not len(sure):
        raise UsageError("a threshold needs labelled rows to be chosen on, and there are none")
    order = np.argsort(-sure, kind="stable")
    sure, hits = sure[order], hits[order]
    answered = _tried(sure, accuracy)
    num_right = np.cumsum(hits)[answered - 1]
    bounds = wilson_bound(num_right, answered, CERTAINTY)
    passed = int(np.logical_and.accumulate(bounds >= accuracy).sum())
    if not passed:
        raise UsageError(
            f"no threshold makes an accuracy of {accuracy:g} certain on {len(sure):,} rows: of "
            f"the {answered[0]:,} surest, down to {sure[answered[0] - 1]:.4f}, {num_right[0]:,} "
            f"are right, which is at least {bounds[0]:.3f} with a certainty of {CERTAINTY:.0%}; "
            "ask for less, or bring more rows"
        )
    last = passed - 1
    return Threshold(
        float(sure[answered[last] - 1]),
        float(num_right[last] / answered[last]),
        float(bounds[last]),
        int(answered[last]),
        len(sure),
    )


def _tried(sure: Floats, accuracy: float) -> NDArray[np.int64]:
    """Return how many of the rows, surest first, each threshold to be tried answers.

    The first has rows enough to pass with one of them wrong, where there are so many: otherwise
    a single mistake would end it.
    """
    num_rows = len(sure)
    sizes = np.arange(1, num_rows + 1)
    enough = int((wilson_bound(sizes - 1, sizes, CERTAINTY) < accuracy).sum()) + 1
    counts = -(-num_rows * np.arange(1, STEPS + 1) // STEPS)
    counts = counts[counts >= min(max(enough, LEAST_ROWS), num_rows)]
    # Equally confident rows are answered together.
    return np.unique(np.searchsorted(-sure, -sure[counts - 1], side="right"))


def refuse_threshold(value: float) -> None:
    """Refuse a threshold given by hand that is none."""
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise UsageError(f"a threshold is a probability from 0 to 1, and {value:g} is not")
