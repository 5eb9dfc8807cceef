"""Choose a confidence threshold with which the remaining predictions reach an accuracy."""

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
"""Confidence level of the lower bound of an accuracy."""
STEPS = 20
"""Number of thresholds that are tested, at equal steps of answered rows."""
LEAST_ROWS = 20
"""Rows that the first threshold answers, if there are enough."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A confidence threshold, and its effect on the rows it was chosen on."""

    value: float
    """Predictions with a lower confidence are marked for review."""
    accuracy: float
    """Accuracy on the answered rows."""
    bound: float
    """Lower bound of that accuracy, with a confidence of 95%."""
    num_answered: int
    num_rows: int

    @property
    def share(self) -> float:
        """Share of the rows that are answered."""
        return self.num_answered / self.num_rows


def choose_threshold(confidences: ArrayLike, right: ArrayLike, accuracy: float) -> Threshold:
    """Return the smallest threshold with which the answered rows reach an accuracy.

    The lower bound of their accuracy (`wilson_bound`) must reach it, not the accuracy itself, so
    that a few rows that are right by chance are not enough. Choosing the best of many thresholds
    would make the bound too optimistic. Therefore thresholds are tested in a fixed order, from the
    most confident rows down, until the first one fails: the error rate of the whole sequence is
    that of a single test (Maurer et al., 1995).
    """
    if not 0 < accuracy < 1:
        raise UsageError(f"the accuracy must be between 0 and 1, not {accuracy:g}")
    sure, hits = np.asarray(confidences, dtype=np.float64), np.asarray(right, dtype=bool)
    if not len(sure):
        raise UsageError("a threshold cannot be chosen without labelled rows")
    order = np.argsort(-sure, kind="stable")
    sure, hits = sure[order], hits[order]
    answered = _tried(sure, accuracy)
    num_right = np.cumsum(hits)[answered - 1]
    bounds = wilson_bound(num_right, answered, CERTAINTY)
    passed = int(np.logical_and.accumulate(bounds >= accuracy).sum())
    if not passed:
        raise UsageError(
            f"no threshold reaches an accuracy of {accuracy:g} on {len(sure):,} rows: of the "
            f"{answered[0]:,} most confident, down to {sure[answered[0] - 1]:.4f}, "
            f"{num_right[0]:,} are right ({CERTAINTY:.0%} lower bound {bounds[0]:.3f}); lower the "
            "accuracy, or add rows"
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
    """Return the number of rows that each tested threshold answers, most confident first.

    The first threshold has enough rows to pass with one error, if possible: otherwise a single
    error would end the search.
    """
    num_rows = len(sure)
    sizes = np.arange(1, num_rows + 1)
    enough = int((wilson_bound(sizes - 1, sizes, CERTAINTY) < accuracy).sum()) + 1
    counts = -(-num_rows * np.arange(1, STEPS + 1) // STEPS)
    counts = counts[counts >= min(max(enough, LEAST_ROWS), num_rows)]
    # Rows with equal confidence are answered together.
    return np.unique(np.searchsorted(-sure, -sure[counts - 1], side="right"))


def refuse_threshold(value: float) -> None:
    """Raise UsageError for a threshold that is not a probability."""
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise UsageError(f"a threshold must be a probability from 0 to 1, not {value:g}")
