"""Task kind "score": a number in a range."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from plait.tasks.guess import (
    FEW_NUMBERS,
    FIRM_LABEL_WORDS,
    MOST_CLASSES,
    SCORE_WORDS,
    Guess,
    is_number,
)
from plait.tasks.kind import SHIFT, TASK_KINDS, Column, Form, Kind, Method, TaskScores, Verdicts
from plait.tasks.metrics import mae, mse, pearson, spearman
from plait.tasks.reading import ScoreReader
from plait.tasks.regression import Linear, fit_numbers
from plait.types import Prediction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from plait.tasks.guess import LabelColumn
    from plait.tasks.kind import Bools, Floats, Ints

RANGES = ((0, 1), (-1, 1), (1, 5), (0, 5), (1, 7), (0, 10), (1, 10), (0, 100))
"""Usual ranges of scores, the narrowest first."""

APART = 0.2
"""Share of the range by which scores of equal texts may differ before they contradict."""


@TASK_KINDS.register("score")
@dataclass(frozen=True, kw_only=True)
class Score(Kind):
    """A number in a range."""

    name: ClassVar[str] = "score"
    form: ClassVar[Form] = "number"
    metrics: ClassVar[tuple[str, ...]] = ("pearson", "spearman", "mse", "mae")
    default_loss: ClassVar[str] = "score-cross-entropy"
    baseline_name: ClassVar[str] = "mean score"
    noun: ClassVar[str] = "score"
    takes_scale: ClassVar[bool] = True

    range: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        """Check the range."""
        if self.range[0] >= self.range[1]:
            low, high = self.range
            raise ValueError(f"range is [{low}, {high}]: the first number must be below the second")

    @property
    def span(self) -> float:
        """Length of the range."""
        return self.range[1] - self.range[0]

    @classmethod
    def guess(cls, column: LabelColumn, *, chosen: bool = False) -> Guess | None:
        """Guess from numbers with fractions, from many numbers, or from the column's name."""
        if comma := column.decimal_comma:
            raise ValueError(
                f"has commas in its numbers, such as {comma!r}; write {comma.replace(',', '.')!r}, "
                "or say --kind labels if they stand between labels"
            )
        values = sorted(set(column.numbers.values()))
        if not values and chosen:
            word = next(value for value in column.counts if not is_number(value))
            raise ValueError(f"holds words, such as {word[:40]!r}, not scores; see --kind")
        if not values:
            return None
        low, high = values[0], values[-1]
        why = f"numbers from {low:g} to {high:g}"
        if not chosen and all(value.is_integer() for value in values):
            # Class numbers leave few gaps and have several rows each.
            dense = low in (0, 1) and len(values) > 0.8 * (high - low + 1)
            dense = dense and column.num_rows >= 5 * len(values) and len(values) <= MOST_CLASSES
            are_classes = dense and bool(column.words & FIRM_LABEL_WORDS)
            is_named = bool(column.words & SCORE_WORDS)
            if {*values} in ({0}, {1}, {0, 1}, {-1, 1}):
                return None
            if not is_named and (len(values) <= FEW_NUMBERS or are_classes):
                return None
            why = "named like a score" if is_named else f"{len(values)} different numbers"
            why += f", from {low:g} to {high:g}"
        return Guess(why, {"range": _usual_range(low, high)}, column.strays)

    def check_columns(self, num: int) -> None:
        """Accept several columns: votes, of which the mean is the score."""

    def reader(
        self,
        columns: Sequence[str],
        label_map: Mapping[str, float],
        *,
        separator: str,  # noqa: ARG002
        scale: tuple[float, float] | None,
    ) -> ScoreReader:
        """Return a reader of numbers; several columns are votes."""
        return ScoreReader(self.range, label_map, scale=scale, votes=len(columns) > 1)

    def meaning(self) -> dict[str, Any]:
        """Return the range."""
        return {"range": list(self.range)}

    def decide(self, answers: Floats) -> NDArray[Any]:
        """Return the numbers."""
        return answers

    def write(self, decisions: ArrayLike) -> list[str]:
        """Return the numbers with two decimals."""
        return [f"{value:.2f}" for value in np.asarray(decisions)]

    def predict(self, task: str, answer: Floats) -> Prediction:
        """Return the number."""
        return Prediction(task, float(answer), f"{answer:.2f}")

    def empty(self) -> Floats:
        """Return the answers to no rows."""
        return np.zeros(0)

    def combine(self, answers: Floats, how: Method) -> Floats:
        """Return the mean, or the median."""
        found: Floats = answers.mean(axis=0) if how == "mean" else np.median(answers, axis=0)
        return found

    def distance(self, before: Floats, after: Floats) -> Floats:
        """Return the distance as a share of the range."""
        found: Floats = np.abs(after - before) / self.span
        return found

    def differs(self, before: Floats, after: Floats, shift: float = SHIFT) -> Bools:
        """Return which rows moved by more than `shift` of the range."""
        return np.asarray(self.distance(before, after) > shift)

    def typical(self, answers: Floats) -> Floats:
        """Return the median, as one row."""
        found: Floats = np.median(answers, axis=0, keepdims=True)
        return found

    def polarity(self, positive: str) -> Floats | None:
        """Return the direction of the range whose end `positive` ("high" or "low") is positive."""
        ends = {"high": 1.0, "low": -1.0}
        return np.array([ends[positive] / self.span]) if positive in ends else None

    def explained_output(self, prediction: Prediction) -> int | None:  # noqa: ARG002
        """Return None: there is one output."""
        return None

    def score(self, labels: ArrayLike, answers: ArrayLike) -> TaskScores:
        """Score the numbers."""
        functions = {"pearson": pearson, "spearman": spearman, "mse": mse, "mae": mae}
        metrics = {name: function(labels, answers) for name, function in functions.items()}
        return TaskScores(self.name, len(np.asarray(labels)), metrics, [], None)

    def baseline(self, train_labels: ArrayLike, rows: int) -> Floats:
        """Return the mean of the training set."""
        labels = np.asarray(train_labels)
        if not len(labels):
            raise ValueError("a baseline needs training labels")
        return np.full(rows, labels.mean(dtype=np.float64))

    @staticmethod
    def to_unit(value: float) -> float:
        """Return a correlation r as (1 + r) / 2."""
        return (1 + value) / 2

    def judge(self, labels: ArrayLike, answers: Floats) -> Verdicts:
        """Return each row's distance from its label."""
        truth = np.asarray(labels, dtype=np.float64)
        distance = np.abs(answers - truth)
        words = self.write(truth), self.write(answers)
        return Verdicts("mae", distance, distance, None, *words, None)

    def count(self, labels: NDArray[Any]) -> Ints | None:  # noqa: ARG002
        """Return None: numbers are not counted."""
        return None

    def groups(self, labels: NDArray[Any]) -> Ints:
        """Return the tenth of the rows, by rank, that each row is in."""
        ranks = np.argsort(np.argsort(labels, kind="stable"), kind="stable")
        found: Ints = ranks * 10 // max(len(labels), 1)
        return found

    def contradict(self, labels: NDArray[Any]) -> bool:
        """Return whether the labels are more than a fifth of the range apart."""
        return bool(np.ptp(labels) > APART * self.span)

    def same_meaning(self, labels: NDArray[Any], threshold: float | None = None) -> Bools | None:
        """Return the pairs at or above `threshold`, a share of the range; None without it."""
        if threshold is None:
            return None
        return np.asarray(labels >= self.range[0] + self.span * threshold)

    def fit(self, features: Floats, labels: NDArray[Any], strength: float) -> Linear:
        """Fit a ridge regression."""
        return fit_numbers(features, labels, strength)

    def linear_answers(self, outputs: Floats) -> Floats:
        """Return the numbers, inside the range."""
        return np.clip(outputs[:, 0], *self.range)

    def columns(self) -> dict[str, Column]:
        """Return the one column of a file of predictions."""
        return {"": "number"}

    def cells(self, prediction: Prediction, separator: str) -> list[Any]:  # noqa: ARG002
        """Return the number."""
        return [prediction.value]

    def to_json(self, prediction: Prediction) -> dict[str, Any]:
        """Return a prediction as a JSON object."""
        return {"value": prediction.value}

    def spell(self, prediction: Prediction, separator: str) -> str:  # noqa: ARG002
        """Return the number with four decimals."""
        return f"{prediction.value:.4f}"


def _usual_range(low: float, high: float) -> list[float]:
    """Return the narrowest usual range that holds the scores and is half filled by them."""
    for first, last in RANGES:
        if first <= low and high <= last and high - low > 0.5 * (last - first):
            return [first, last]
    first = math.floor(low)
    return [first, max(math.ceil(high), first + 1)]
