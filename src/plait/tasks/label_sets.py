"""Task kind "labels": any number of labels at once."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from plait.tasks.guess import SEPARATORS, Guess
from plait.tasks.kind import TASK_KINDS, Column, Form, Kind, Method, TaskScores, Verdicts
from plait.tasks.metrics import (
    average_precision,
    class_rates,
    label_counts,
    label_log_loss,
    list_classes,
    subset_accuracy,
)
from plait.tasks.reading import LIST_MARK, LabelReader, LabelSetReader
from plait.tasks.regression import Linear, fit_yes
from plait.types import Prediction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike, NDArray

    from plait.tasks.guess import LabelColumn
    from plait.tasks.kind import Floats, Ints


@TASK_KINDS.register("labels")
@dataclass(frozen=True, kw_only=True)
class Labels(Kind):
    """Any number of labels at once; answers are a probability per label."""

    name: ClassVar[str] = "labels"
    form: ClassVar[Form] = "independent"
    # Micro F1 first: a label with two dev rows can move a macro mean by more than all others.
    metrics: ClassVar[tuple[str, ...]] = (
        "micro_f1",
        "micro_precision",
        "micro_recall",
        "macro_f1",
        "subset_accuracy",
        "mean_average_precision",
        "log_loss",
    )
    default_loss: ClassVar[str] = "label-bce"
    baseline_name: ClassVar[str] = "usual labels"
    noun: ClassVar[str] = "label"
    columns_name_labels: ClassVar[bool] = True

    labels: tuple[str, ...] = ()
    threshold: float = 0.5
    """Probability from which a label holds."""

    def __post_init__(self) -> None:
        """Check the settings."""
        if not self.labels:
            raise ValueError("labels must give the number of labels, or their names")
        if not 0 < self.threshold < 1:
            raise ValueError(f"threshold is a probability between 0 and 1, not {self.threshold}")

    @property
    def words(self) -> tuple[str, ...]:
        """The labels' names."""
        return self.labels

    @property
    def width(self) -> int | None:
        """0 or 1 for each label."""
        return len(self.labels)

    @classmethod
    def guess(cls, column: LabelColumn, *, chosen: bool = False) -> Guess | None:
        """Guess from lists, or from labels with a separator between them."""
        # A list as a program prints it: ['late', 'angry'].
        printed = [value for value in column.counts if re.search(r"""[,'"]""", value)]
        if printed and all(value[0] == "[" and value[-1] == "]" for value in column.counts):
            raise ValueError(
                f"has lists written as text, such as {printed[0][:40]!r}; write their labels with "
                "; between them, or save the file as JSON lines or Parquet"
            )
        if column.decimal_comma and not chosen:
            return None
        if (found := column.split(chosen=chosen)) is None:
            if chosen:
                raise ValueError(
                    "has one label a row, with no |, ; or , between several; that is --kind classes"
                )
            return None
        mark, labels = found
        shown = f"several labels a row, {mark!r} between them"
        if mark == LIST_MARK:
            shown = "lists of labels"
            free = (sign for sign in SEPARATORS if not any(sign in label for label in labels))
            mark = next(free, SEPARATORS[0])
        settings = {"labels": labels, "label_separator": mark}
        return Guess(f"{shown}; {len(labels)} different ones", settings)

    def check_columns(self, num: int) -> None:
        """Raise ValueError unless there is a column for each label."""
        if num != len(self.labels):
            raise ValueError(f"label names {num} columns for {len(self.labels)} labels")

    def reader(
        self,
        columns: Sequence[str],
        label_map: Mapping[str, float],
        *,
        separator: str,
        scale: tuple[float, float] | None,  # noqa: ARG002
    ) -> LabelReader:
        """Return a reader of lists of labels, or of a column of 0 and 1 for each label."""
        if len(columns) > 1:
            return LabelReader(("no", "yes"), label_map, also={"false": 0.0, "true": 1.0})
        return LabelSetReader(self.labels, label_map, separator)

    def meaning(self) -> dict[str, Any]:
        """Return labels and threshold."""
        return super().meaning() | {"threshold": self.threshold}

    def decide(self, answers: Floats) -> NDArray[Any]:
        """Return which labels hold."""
        return answers >= self.threshold

    def write(self, decisions: ArrayLike) -> list[str]:
        """Return the names of the labels that hold, 'none' without any."""
        rows = (np.flatnonzero(row) for row in np.asarray(decisions))
        return [", ".join(self.labels[i] for i in row) or "none" for row in rows]

    def predict(self, task: str, answer: Floats) -> Prediction:
        """Return the labels that hold.

        The confidence is the probability that exactly these hold, as if labels were independent.
        """
        chosen = tuple(np.flatnonzero(answer >= self.threshold).tolist())
        words = tuple(self.labels[i] for i in chosen)
        probabilities = tuple(map(float, answer))
        confidence = math.prod(p if i in chosen else 1 - p for i, p in enumerate(probabilities))
        label = ", ".join(words) or "none"
        return Prediction(task, chosen, label, probabilities, confidence, words)

    def empty(self) -> Floats:
        """Return the answers to no rows."""
        return np.zeros((0, len(self.labels)))

    def combine(self, answers: Floats, how: Method) -> Floats:
        """Return the mean, or probabilities that reach the threshold where most members' do.

        A tie goes to the mean probability. The probabilities are the members' mean, or that of
        the members that agree with the vote where the mean is against it.
        """
        mean: Floats = answers.mean(axis=0)
        if how == "mean":
            return mean
        ballots = answers >= self.threshold
        votes = 2 * ballots.sum(axis=0) - len(answers)
        holds = np.where(votes == 0, mean >= self.threshold, votes > 0)
        agreeing = ballots == holds
        total = np.where(agreeing, answers, 0.0).sum(axis=0)
        outvoted = (mean >= self.threshold) != holds
        return np.where(outvoted, total / np.maximum(agreeing.sum(axis=0), 1), mean)

    def distance(self, before: Floats, after: Floats) -> Floats:
        """Return the change of the probability that changed most."""
        found: Floats = np.abs(after - before).max(axis=1)
        return found

    def score(self, labels: ArrayLike, answers: ArrayLike) -> TaskScores:
        """Score which labels hold, and the probabilities."""
        probabilities = np.asarray(answers, dtype=np.float64)
        true = np.asarray(labels)
        if true.shape != (len(true), len(self.labels)) or probabilities.shape != true.shape:
            raise ValueError(f"labels are {true.shape} and probabilities {probabilities.shape}")
        predicted = probabilities >= self.threshold
        counts = label_counts(true, predicted)
        precision, recall, f1 = class_rates(counts)
        micro = [float(rate[0]) for rate in class_rates(counts.sum(axis=0, keepdims=True))]
        pairs = zip(true.T, probabilities.T, strict=True)
        averages = [average_precision(*pair) for pair in pairs]
        known = [value for value in averages if not math.isnan(value)]
        metrics = {
            "micro_f1": micro[2],
            "micro_precision": micro[0],
            "micro_recall": micro[1],
            # Labels without rows count as 0 in the macro average.
            "macro_f1": float(f1.mean()),
            "subset_accuracy": subset_accuracy(true, predicted),
            "mean_average_precision": float(np.mean(known)) if known else math.nan,
            "log_loss": label_log_loss(true, probabilities),
        }
        per_label = list_classes(self.labels, precision, recall, f1, counts[:, 2])
        return TaskScores(self.name, len(true), metrics, per_label, None)

    def baseline(self, train_labels: ArrayLike, rows: int) -> Floats:
        """Return the labels' frequencies in the training set."""
        labels = np.asarray(train_labels)
        if not len(labels):
            raise ValueError("a baseline needs training labels")
        return np.tile(labels.mean(axis=0, dtype=np.float64), (rows, 1))

    def judge(self, labels: ArrayLike, answers: Floats) -> Verdicts:
        """Return which rows' labels are not exactly right."""
        true = np.asarray(labels) > 0
        held = answers >= self.threshold
        sure = np.where(held, answers, 1 - answers)
        right = (held == true).all(axis=1)
        severity: Floats = np.where(held == true, 0.0, sure).max(axis=1)
        together: Floats = sure.prod(axis=1)
        words = self.write(true), self.write(held)
        quality = right.astype(np.float64)
        return Verdicts("subset_accuracy", quality, severity, right, *words, together)

    def count(self, labels: NDArray[Any]) -> Ints | None:
        """Return the rows that have each label."""
        found: Ints = labels.sum(axis=0).astype(np.int64)
        return found

    def groups(self, labels: NDArray[Any]) -> Ints:
        """Return a number for each set of labels."""
        _, found = np.unique(labels, axis=0, return_inverse=True)
        return found.ravel()

    def fit(self, features: Floats, labels: NDArray[Any], strength: float) -> Linear:
        """Fit a logistic regression for each label."""
        return fit_yes(features, labels.reshape(len(labels), -1), strength)

    def linear_answers(self, outputs: Floats) -> Floats:
        """Return the probability of each label."""
        from scipy.special import expit

        found: Floats = expit(outputs)
        return found

    def columns(self) -> dict[str, Column]:
        """Return the columns of a file of predictions, with the probability of each label held."""
        ends: dict[str, Column] = {"": "text", "_label": "text", "_confidence": "number"}
        return ends | {"_label_probabilities": "text"}

    def cells(self, prediction: Prediction, separator: str) -> list[Any]:
        """Return one row's cells, several labels in one cell."""
        assert isinstance(prediction.value, tuple)
        chances = [f"{p:.4f}" for p in prediction.word_probabilities]
        value, label, each = (
            separator.join(map(str, several))
            for several in (prediction.value, prediction.words, chances)
        )
        return [value, label, prediction.confidence, each]

    def to_json(self, prediction: Prediction) -> dict[str, Any]:
        """Return a prediction as a JSON object, with the probability of each label held."""
        chances = [round(p, 6) for p in prediction.word_probabilities]
        found = super().to_json(prediction)
        return found | {"label": prediction.words, "label_probabilities": chances}

    def spell(self, prediction: Prediction, separator: str) -> str:
        """Return the labels that hold, separated as in the task's own files."""
        return separator.join(prediction.words)
