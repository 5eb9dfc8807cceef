"""Answers become mistakes: classes taken for their neighbours, rows that were missed most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.report.answers import TaskAnswers


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


@dataclass(frozen=True, slots=True)
class Miss:
    """A row that was answered wrongly."""

    row: int
    """Its place in the data set."""
    true: float
    answered: float
    size: float
    """Distance of a score; how sure a wrong class was."""


def worst_misses(task: TaskAnswers, most: int) -> list[Miss]:
    """Return the scores furthest off, or the wrong classes the model was surest of."""
    answers = task.answers
    if task.spec.kind == "score":
        given, sizes = answers, np.abs(answers - task.labels)
        wrong = sizes > 0
    else:
        given, sizes = answers.argmax(axis=1).astype(np.float64), answers.max(axis=1)
        wrong = given != task.labels
    sizes = np.where(wrong & np.isfinite(sizes), sizes, -np.inf)
    order = np.argsort(-sizes, kind="stable")[:most]
    return [
        Miss(int(i), float(task.labels[i]), float(given[i]), float(sizes[i]))
        for i in order
        if sizes[i] > -np.inf
    ]
