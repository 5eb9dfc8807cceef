"""Two answers become how far they lie apart, and how much praise is in one.

What a change is hangs on the kind of task, and is said here alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plait.tasks.metrics import Floats
    from plait.types import TaskSpec

SHIFT = 0.1
"""Part of its range that a score has to move for the answer to count as changed."""

_PRAISE = {"positive", "good", "great", "happy", "favourable", "favorable", "satisfied"}
_BLAME = {"negative", "bad", "awful", "unhappy", "unfavourable", "unfavorable", "dissatisfied"}
_DEGREES = {"very": 2.0, "extremely": 2.0, "highly": 2.0, "somewhat": 0.5, "slightly": 0.5}


def measure_changes(
    spec: TaskSpec, before: Floats, after: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return how far each answer moved, from 0 to 1, and whether it is another one.

    Of classes, how far is the part of the probability that moved (total variation); of scores,
    the distance as a part of the range; of labels, the move of the one that moved most.
    """
    if spec.kind == "labels":
        held, now = before >= spec.threshold, after >= spec.threshold
        return np.abs(after - before).max(axis=1), (held != now).any(axis=1)
    if spec.kind == "score":
        low, high = spec.range
        moved: Floats = np.abs(after - before) / (high - low)
        return moved, moved > SHIFT
    moved = np.abs(after - before).sum(axis=1) / 2
    return moved, before.argmax(axis=1) != after.argmax(axis=1)


def find_typical(spec: TaskSpec, answers: Floats) -> Floats:
    """Return what most answers are like, one answer: of the commonest class, or the middle.

    Of labels, of the commonest set of them.
    """
    if spec.kind == "score":
        return np.median(answers, axis=0, keepdims=True)
    if spec.kind == "labels":
        sets = answers >= spec.threshold
        _, chosen = np.unique(sets, axis=0, return_inverse=True)
    else:
        chosen = answers.argmax(axis=1)
    typical: Floats = answers[chosen == np.bincount(chosen).argmax()].mean(axis=0, keepdims=True)
    return typical


def find_praise(spec: TaskSpec, positive: str | None) -> Floats | None:
    """Return how much praise each output stands for, [outputs]; None where nobody can say.

    `positive` is the label that praises or, for scores, high or low: the end that does. Unless
    given, it is read off the labels' words, which have to name both praise and blame.
    """
    if spec.kind == "score":
        ends = {"high": 1.0, "low": -1.0}
        low, high = spec.range
        return np.array([ends[positive] / (high - low)]) if positive in ends else None
    if positive is not None:
        return np.array([float(label == positive) for label in spec.labels])
    weights = [_weigh(label) for label in spec.labels]
    return np.array(weights) if min(weights) < 0 < max(weights) else None


def measure_praise(praise: Floats, answers: Floats) -> Floats:
    """Return how much praise is in each answer."""
    found: Floats = answers.reshape(len(answers), -1) @ praise
    return found


def _weigh(label: str) -> float:
    words = set(re.findall(r"[a-z]+", label.lower()))
    sign = float(bool(words & _PRAISE)) - float(bool(words & _BLAME))
    return sign * next((degree for word, degree in _DEGREES.items() if word in words), 1.0)
