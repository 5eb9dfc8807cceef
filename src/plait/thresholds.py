"""How sure an answer must be to be given: a wanted accuracy becomes a confidence threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plait.errors import UsageError
from plait.intervals import wilson_bound

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

CERTAINTY = 0.95
"""How certain the lower bound of an accuracy is."""


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
    """Return the smallest threshold whose answered rows are accurate enough.

    Enough is a lower bound of their accuracy (`wilson_bound`), not the accuracy itself, so that
    a few rows that happen to be right do not count for much. Thresholds are confidences of the
    rows: below the least of them nothing was tried.
    """
    if not 0 < accuracy < 1:
        raise UsageError(f"an accuracy lies between 0 and 1, and {accuracy:g} does not")
    sure, hits = np.asarray(confidences, dtype=np.float64), np.asarray(right, dtype=bool)
    if not len(sure):
        raise UsageError("a threshold needs labelled rows to be chosen on, and there are none")
    order = np.argsort(-sure, kind="stable")
    sure = sure[order]
    num_right = np.cumsum(hits[order])
    answered = np.arange(1, len(sure) + 1)
    bounds = wilson_bound(num_right, answered, CERTAINTY)
    # Equally confident rows are answered together: only the last of them ends a group.
    ends = np.append(sure[1:] < sure[:-1], True)
    good = np.flatnonzero(ends & (bounds >= accuracy))
    if not len(good):
        best = int(np.argmax(np.where(ends, bounds, -1.0)))
        raise UsageError(
            f"no threshold makes an accuracy of {accuracy:g} certain on {len(sure):,} rows: the "
            f"best, {sure[best]:.4f}, answers {answered[best]:,} and gets {num_right[best]:,} "
            f"right, which is at least {bounds[best]:.3f} with a certainty of {CERTAINTY:.0%}; "
            "ask for less, or bring more rows"
        )
    place = int(good[-1])
    return Threshold(
        float(sure[place]),
        float(num_right[place] / answered[place]),
        float(bounds[place]),
        int(answered[place]),
        len(sure),
    )


def refuse_threshold(value: float) -> None:
    """Refuse a threshold given by hand that is none."""
    if not (math.isfinite(value) and 0 <= value <= 1):
        raise UsageError(f"a threshold is a probability from 0 to 1, and {value:g} is not")
