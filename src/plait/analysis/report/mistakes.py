"""Answers become near misses: classes taken for their neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Two classes that stand next to each other in the recipe."""

    lower: int
    upward: int
    """Rows of the lower class taken for the one above it."""
    downward: int
    """Rows of the one above taken for the lower one."""


@dataclass(frozen=True, slots=True)
class NearMisses:
    """How many wrong answers are only one class off."""

    wrong: int
    near: int
    pairs: tuple[Neighbours, ...]


def near_misses(confusion: Sequence[Sequence[int]]) -> NearMisses:
    """Count wrong answers that are one class off; what it means is up to the labels' order."""
    counts = np.asarray(confusion)
    pairs = tuple(
        Neighbours(i, int(counts[i, i + 1]), int(counts[i + 1, i])) for i in range(len(counts) - 1)
    )
    wrong = int(counts.sum() - np.trace(counts))
    return NearMisses(wrong, sum(p.upward + p.downward for p in pairs), pairs)
