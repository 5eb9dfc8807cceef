"""Task kind "classes": one class out of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from plait.tasks.guess import MOST_CLASSES, Guess
from plait.tasks.kind import TASK_KINDS, Form, Kind, Method, TaskScores, Verdicts
from plait.tasks.metrics import (
    accuracy,
    confusion_matrix,
    has_numbers,
    list_classes,
    log_loss,
    precision_recall_f1,
)
from plait.tasks.reading import LabelReader
from plait.tasks.regression import Linear, fit_classes
from plait.types import Prediction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from plait.tasks.guess import LabelColumn
    from plait.tasks.kind import Floats, Ints


@TASK_KINDS.register("classes")
@dataclass(frozen=True, kw_only=True)
class Classes(Kind):
    """One class out of several; answers are probabilities that sum to 1."""

    name: ClassVar[str] = "classes"
    form: ClassVar[Form] = "distribution"
    metrics: ClassVar[tuple[str, ...]] = (
        "accuracy",
        "macro_precision",
        "macro_recall",
        "macro_f1",
        "log_loss",
    )
    default_loss: ClassVar[str] = "cross-entropy"
    baseline_name: ClassVar[str] = "majority class"
    dtype: ClassVar[type] = np.int64
    can_abstain: ClassVar[bool] = True
    can_scale: ClassVar[bool] = True

    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the number of labels."""
        if len(self.labels) < 2:
            raise ValueError("labels must give the number of classes, or their names, two or more")

    @property
    def words(self) -> tuple[str, ...]:
        """The classes' names."""
        return self.labels

    @classmethod
    def guess(cls, column: LabelColumn, *, chosen: bool = False) -> Guess | None:  # noqa: ARG003
        """Guess classes from words or from whole numbers."""
        values = sorted(set(column.numbers.values()))
        if values and all(value.is_integer() for value in values):
            low, high = int(values[0]), int(values[-1])
            shown = f"whole numbers from {low} to {high}"
            if low == 0 and 2 * len(values) > high:  # gaps are classes without rows
                return Guess(shown, {"labels": high + 1}, column.strays)
            numbers = [str(int(value)) for value in values]
            return Guess(f"{len(values)} different {shown}", {"labels": numbers}, column.strays)
        words = column.spellings
        if len(words) > MOST_CLASSES or (len(words) > 0.5 * column.num_rows > 5):
            raise ValueError(
                f"has {len(words):,} different values in {column.num_rows:,} rows, too many for "
                "classes; choose another column with --label"
            )
        return Guess(f"{len(words)} different words", {"labels": words})

    def reader(
        self,
        columns: Sequence[str],  # noqa: ARG002
        label_map: Mapping[str, float],
        *,
        separator: str,  # noqa: ARG002
        scale: tuple[float, float] | None,  # noqa: ARG002
    ) -> LabelReader:
        """Return a reader of class names and numbers."""
        return LabelReader(self.labels, label_map)

    def decide(self, answers: Floats) -> NDArray[Any]:
        """Return the most probable class, the first of equals."""
        found: Ints = answers.argmax(axis=1)
        return found

    def write(self, decisions: ArrayLike) -> list[str]:
        """Return the classes' names."""
        return [self.labels[int(number)] for number in np.asarray(decisions)]

    def predict(self, task: str, answer: Floats) -> Prediction:
        """Return the most probable class."""
        best, probabilities = int(np.argmax(answer)), tuple(float(p) for p in answer)
        return Prediction(task, best, self.labels[best], probabilities, max(probabilities))

    def empty(self) -> Floats:
        """Return the answers to no rows."""
        return np.zeros((0, len(self.labels)))

    def combine(self, answers: Floats, how: Method) -> Floats:
        """Return the mean, or probabilities whose highest is the class that most members choose.

        A tie goes to the class with the higher mean probability, the first of equals. The
        probabilities are the members' mean. Where a few very confident members would turn it
        against the vote, it is the mean of the members that chose the class.
        """
        mean: Floats = answers.mean(axis=0)
        if how == "mean":
            return mean
        ballots = np.eye(answers.shape[2])[answers.argmax(axis=2)]
        votes = ballots.sum(axis=0)
        tied = votes == votes.max(axis=1, keepdims=True)
        chosen = np.where(tied, mean, -1.0).argmax(axis=1)
        outvoted = mean.argmax(axis=1) != chosen
        if outvoted.any():
            agreeing = ballots[:, np.arange(len(chosen)), chosen]  # [members, rows]
            total = np.einsum("me,mec->ec", agreeing, answers)
            mean[outvoted] = (total / agreeing.sum(axis=0)[:, None])[outvoted]
        return mean

    def distance(self, before: Floats, after: Floats) -> Floats:
        """Return the total variation distance."""
        found: Floats = np.abs(after - before).sum(axis=1) / 2
        return found

    def score(self, labels: ArrayLike, answers: ArrayLike) -> TaskScores:
        """Score the most probable class, and the probabilities."""
        probabilities = np.asarray(answers, dtype=np.float64)
        true = np.asarray(labels).astype(np.int64)
        shape = (len(true), len(self.labels))
        if probabilities.shape != shape:
            raise ValueError(f"probabilities are {probabilities.shape}, not {shape}")
        predicted = probabilities.argmax(axis=1)
        confusion = confusion_matrix(true, predicted, len(self.labels))
        precision, recall, f1 = precision_recall_f1(confusion)
        metrics = {
            "accuracy": accuracy(true, predicted),
            # Classes without rows count as 0 in the macro averages.
            "macro_precision": float(precision.mean()),
            "macro_recall": float(recall.mean()),
            "macro_f1": float(f1.mean()),
            "log_loss": log_loss(true, probabilities),
        }
        per_class = list_classes(self.labels, precision, recall, f1, confusion.sum(axis=1))
        return TaskScores(self.name, len(true), metrics, per_class, confusion.tolist())

    def baseline(self, train_labels: ArrayLike, rows: int) -> Floats:
        """Return the classes' frequencies in the training set."""
        labels = np.asarray(train_labels)
        if not len(labels):
            raise ValueError("a baseline needs training labels")
        counts = np.bincount(labels.astype(np.int64), minlength=len(self.labels))
        return np.tile(counts / len(labels), (rows, 1))

    def judge(self, labels: ArrayLike, answers: Floats) -> Verdicts:
        """Return which rows' most probable class is wrong."""
        true = np.asarray(labels).astype(np.int64)
        chosen, confidence = answers.argmax(axis=1), answers.max(axis=1)
        right = chosen == true
        severity = np.where(right, 0.0, confidence)
        words = self.write(true), self.write(chosen)
        return Verdicts("accuracy", right.astype(np.float64), severity, right, *words, confidence)

    def groups(self, labels: NDArray[Any]) -> Ints:
        """Return the classes."""
        return labels.astype(np.int64)

    def fit(self, features: Floats, labels: NDArray[Any], strength: float) -> Linear:
        """Fit a multinomial logistic regression."""
        return fit_classes(features, labels, len(self.labels), strength)

    def linear_answers(self, outputs: Floats) -> Floats:
        """Return the softmax."""
        from scipy.special import softmax

        found: Floats = softmax(outputs, axis=1)
        return found

    def spell(self, prediction: Prediction, separator: str) -> str:  # noqa: ARG002
        """Return the number of the class; its name where names are numbers (priorities 1 to 5)."""
        if has_numbers(self.labels):
            return self.labels[int(prediction.value)]  # type: ignore[arg-type]
        return str(prediction.value)
