"""Labels and answers become a verdict on every row: how good, how bad, and both in words.

What a mistake is hangs on the kind of task, and is said here alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from plait.tasks.metrics import Floats
    from plait.types import TaskSpec


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What a model's answers to some rows are worth, one entry a row."""

    figure: str
    """Name of the figure that is the mean of `quality`: accuracy, subset_accuracy or mae."""
    quality: Floats
    """1 for right and 0 for wrong, or the distance from the truth. Labels are right together."""
    severity: Floats
    """How bad a mistake is, 0 for none: confidence in a wrong answer, of labels in the one that
    was answered wrong most surely; or the distance."""
    right: NDArray[np.bool_] | None
    """None for scores, of which none is quite right."""
    truths: list[str]
    answers: list[str]
    confidences: Floats | None
    """Probability of the answer given; None for scores."""

    def order(self) -> NDArray[np.int64]:
        """Return the rows that are mistakes, the worst first."""
        worst = np.argsort(-self.severity, kind="stable")
        return worst[self.severity[worst] > 0]


def judge(spec: TaskSpec, labels: ArrayLike, answers: Floats) -> Verdicts:
    """Judge probabilities [rows, classes], or scores [rows], by their labels."""
    if spec.kind == "labels":
        return _judge_labels(spec, np.asarray(labels) > 0, answers)
    if spec.kind == "score":
        truth = np.asarray(labels, dtype=np.float64)
        distance = np.abs(answers - truth)
        words = write_labels(spec, truth), write_labels(spec, answers)
        return Verdicts("mae", distance, distance, None, *words, None)
    number = np.asarray(labels).astype(np.int64)
    chosen, confidence = answers.argmax(axis=1), answers.max(axis=1)
    right = chosen == number
    words = write_labels(spec, number), write_labels(spec, chosen)
    severity = np.where(right, 0.0, confidence)
    return Verdicts("accuracy", right.astype(np.float64), severity, right, *words, confidence)


def _judge_labels(spec: TaskSpec, true: NDArray[np.bool_], answers: Floats) -> Verdicts:
    """Judge a probability for each label by whether it holds, [rows, labels]."""
    held = answers >= spec.threshold
    sure = np.where(held, answers, 1 - answers)
    right = (held == true).all(axis=1)
    severity: Floats = np.where(held == true, 0.0, sure).max(axis=1)
    words = write_labels(spec, true), write_labels(spec, held)
    together: Floats = sure.prod(axis=1)
    quality = right.astype(np.float64)
    return Verdicts("subset_accuracy", quality, severity, right, *words, together)


def write_labels(spec: TaskSpec, labels: ArrayLike) -> list[str]:
    """Put labels into words: the names of classes, scores with two decimals."""
    if spec.kind == "labels":
        rows = (np.flatnonzero(row) for row in np.asarray(labels))
        return [", ".join(spec.labels[i] for i in row) or "none" for row in rows]
    if spec.kind == "score":
        return [f"{value:.2f}" for value in np.asarray(labels)]
    return [spec.labels[int(number)] for number in np.asarray(labels)]
