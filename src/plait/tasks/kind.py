"""The contract of a task kind: everything that depends on what a task's labels and answers are.

Answers are float64: probabilities [rows, outputs], or numbers [rows]. A kind is a frozen
dataclass whose fields are settings of [tasks.NAME]; it works on numpy arrays only. What needs
torch belongs to the losses, which go by the form of the answers.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from plait.registry import Registry
from plait.tasks.guess import Guess
from plait.types import Prediction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import ArrayLike

    from plait.tasks.guess import LabelColumn
    from plait.tasks.reading import LabelReader
    from plait.tasks.regression import Linear

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Form = Literal["distribution", "independent", "number"]
"""Probabilities that sum to 1, one probability per label, or one number."""
Method = Literal["mode", "mean"]
"""How several models' answers become one."""
Column = Literal["integer", "number", "text", "boolean"]
"""Type of a column in a file of predictions."""

SHIFT = 0.1
"""Share of its range that a number must move by for the answer to count as changed."""


@dataclass(frozen=True)
class TaskScores:
    """All scores of one task on one data set."""

    kind: str
    num_examples: int
    metrics: dict[str, float]
    """By name; nan where a metric is undefined."""
    per_class: list[dict[str, str | int | float]]
    """label, precision, recall, f1, support of each class or label. Empty for numbers."""
    confusion: list[list[int]] | None
    """Counts, rows true and columns predicted; None where an answer is not one class."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values; NaN and infinity are written as null."""
        metrics = {k: v if math.isfinite(v) else None for k, v in self.metrics.items()}
        return asdict(self) | {"metrics": metrics}


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Whether and how badly each row's answer is wrong, one entry a row."""

    metric: str
    """Name of the metric that is the mean of `quality`: accuracy, subset_accuracy or mae."""
    quality: Floats
    """1 for right and 0 for wrong, or the distance from the label."""
    severity: Floats
    """0 for a right answer, else the confidence in the wrong answer (of several labels, in the
    most confident wrong one), or the distance from the label."""
    right: Bools | None
    """None where no answer is exactly right, as for numbers."""
    truths: list[str]
    answers: list[str]
    confidences: Floats | None
    """Probability of the answer given; None for numbers."""

    def order(self) -> Ints:
        """Return the rows that are wrong, the worst first."""
        worst = np.argsort(-self.severity, kind="stable")
        return worst[self.severity[worst] > 0]


@dataclass(frozen=True, kw_only=True)
class Kind(ABC):
    """What a task's labels and answers are. The fields are settings of [tasks.NAME]."""

    name: ClassVar[str]
    form: ClassVar[Form]
    metrics: ClassVar[tuple[str, ...]]
    """Every metric of a task of this kind; the first one is its primary metric by default."""
    default_loss: ClassVar[str]
    baseline_name: ClassVar[str]
    """What the baseline is called that ignores the text."""
    dtype: ClassVar[type] = np.float32
    """Type of stored labels."""
    noun: ClassVar[str] = "class"
    columns_name_labels: ClassVar[bool] = False
    """Whether a list of label columns names the labels, a column each."""
    takes_scale: ClassVar[bool] = False
    """Whether a file may set its own label range."""
    can_abstain: ClassVar[bool] = False
    """Whether answers below a confidence threshold can be held back."""
    can_scale: ClassVar[bool] = False
    """Whether a temperature can calibrate the answers."""
    is_yes_no: ClassVar[bool] = False
    """Whether label 1 means yes: of a pair, that both texts mean the same."""

    # --- settings and labels -------------------------------------------------------------

    @property
    def words(self) -> tuple[str, ...]:
        """Names of the outputs; empty for a number."""
        return ()

    @property
    def width(self) -> int | None:
        """Numbers stored per label; None for a single one."""
        return None

    def to_recipe(self) -> str | dict[str, Any]:
        """Return the name, or a table with the settings that are not keys of [tasks.NAME]."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in FLAT}
        return {"name": self.name, **own} if own else self.name

    @classmethod
    def guess(cls, column: LabelColumn, *, chosen: bool = False) -> Guess | None:  # noqa: ARG003
        """Return a task's settings if a label column looks like this kind, else None.

        If the user chose the kind, raise ValueError where the column does not fit.
        """
        return None

    def check_columns(self, num: int) -> None:  # noqa: ARG002
        """Raise ValueError if a task of this kind cannot have `num` label columns (2 or more)."""
        raise ValueError(f"a task of kind {self.name!r} has one label column, not a list")

    @abstractmethod
    def reader(
        self,
        columns: Sequence[str],
        label_map: Mapping[str, float],
        *,
        separator: str,
        scale: tuple[float, float] | None,
    ) -> LabelReader:
        """Return what reads the labels in a file's label columns."""

    def meaning(self) -> dict[str, Any]:
        """Return the settings that answers depend on; ensemble members must share them."""
        return {"labels": list(self.words)}

    # --- answers -------------------------------------------------------------------------

    @abstractmethod
    def decide(self, answers: Floats) -> NDArray[Any]:
        """Return class numbers, a table of which labels hold, or the numbers themselves."""

    @abstractmethod
    def write(self, decisions: ArrayLike) -> list[str]:
        """Return labels or decisions in words."""

    @abstractmethod
    def predict(self, task: str, answer: Floats) -> Prediction:
        """Return one row's answer as a Prediction."""

    @abstractmethod
    def empty(self) -> Floats:
        """Return the answers to no rows."""

    @abstractmethod
    def combine(self, answers: Floats, how: Method) -> Floats:
        """Return one answer per row from those of several models, [members, rows, ...]."""

    @abstractmethod
    def distance(self, before: Floats, after: Floats) -> Floats:
        """Return how far each row's answer moved, from 0 to 1."""

    def differs(self, before: Floats, after: Floats, shift: float = SHIFT) -> Bools:  # noqa: ARG002
        """Return which rows' decisions differ; numbers differ by more than `shift` of the range."""
        differing = self.decide(before) != self.decide(after)
        found: Bools = differing.reshape(len(differing), -1).any(axis=1)
        return found

    def typical(self, answers: Floats) -> Floats:
        """Return the mean of the answers with the commonest decision, as one row."""
        _, chosen = np.unique(self.decide(answers), axis=0, return_inverse=True)
        chosen = chosen.ravel()
        most = np.bincount(chosen).argmax()
        found: Floats = answers[chosen == most].mean(axis=0, keepdims=True)
        return found

    def polarity(self, positive: str) -> Floats | None:
        """Return how positive each output is, where `positive` names the positive label or end."""
        if positive not in self.words:
            return None
        return np.array([float(word == positive) for word in self.words])

    def explained_output(self, prediction: Prediction) -> int | None:
        """Return the number of the output that an explanation is about; None for a number."""
        return int(np.argmax(prediction.probabilities))

    # --- scores --------------------------------------------------------------------------

    @abstractmethod
    def score(self, labels: ArrayLike, answers: ArrayLike) -> TaskScores:
        """Return all metrics of answers to labelled rows."""

    @abstractmethod
    def baseline(self, train_labels: ArrayLike, rows: int) -> Floats:
        """Return the answers of a model that ignores the text."""

    @staticmethod
    def to_unit(value: float) -> float:
        """Return a primary metric's value on a scale from 0 to 1."""
        return value

    @abstractmethod
    def judge(self, labels: ArrayLike, answers: Floats) -> Verdicts:
        """Return whether and how badly each row's answer is wrong."""

    # --- labels of a data set ------------------------------------------------------------

    def count(self, labels: NDArray[Any]) -> Ints | None:
        """Return the rows of each label; None for numbers."""
        return np.bincount(labels.astype(np.int64), minlength=len(self.words))

    @abstractmethod
    def groups(self, labels: NDArray[Any]) -> Ints:
        """Return a group number per row; rows of a group have similar labels."""

    def contradict(self, labels: NDArray[Any]) -> bool:
        """Return whether the labels of rows with the same text contradict each other."""
        return bool((labels != labels[0]).any())

    def same_meaning(self, labels: NDArray[Any], threshold: float | None = None) -> Bools | None:  # noqa: ARG002
        """Return which labelled pairs mean the same; None where labels do not say."""
        return None

    @abstractmethod
    def fit(self, features: Floats, labels: NDArray[Any], strength: float) -> Linear:
        """Fit a linear model of frozen features."""

    @abstractmethod
    def linear_answers(self, outputs: Floats) -> Floats:
        """Return the answers of such a linear model from its outputs."""

    # --- files ---------------------------------------------------------------------------

    def columns(self) -> dict[str, Column]:
        """Return the columns of a file of predictions, by the ending of their names."""
        return {"": "integer", "_label": "text", "_confidence": "number"}

    def cells(self, prediction: Prediction, separator: str) -> list[Any]:  # noqa: ARG002
        """Return one row's cells of those columns."""
        return [prediction.value, prediction.label, prediction.confidence]

    def to_json(self, prediction: Prediction) -> dict[str, Any]:
        """Return a prediction as a JSON object."""
        assert prediction.confidence is not None
        return {
            "value": prediction.value,
            "label": prediction.label,
            "confidence": round(prediction.confidence, 6),
        }

    def spell(self, prediction: Prediction, separator: str) -> str:  # noqa: ARG002
        """Return a prediction as the task's own files write the label."""
        return str(prediction.value)


FLAT = ("labels", "threshold", "range")
"""Settings of kinds that are keys of [tasks.NAME] itself; others stand in the table `kind`."""

TASK_KINDS: Registry[Kind] = Registry("task-kind", "labels and answers of a task")


def guess_kind(column: LabelColumn, chosen: str | None = None) -> tuple[str, Guess]:
    """Return the kind of task that a label column is for, or the user's choice, and its settings.

    Raises ValueError, with the end of a sentence about the column, where no kind fits.
    """
    if chosen is not None:
        kind = TASK_KINDS[chosen]
        if column.has_lists and not kind.columns_name_labels:
            raise ValueError("holds lists of labels; that is --kind labels")
        return chosen, kind.guess(column, chosen=True) or Guess("as given")
    # Almost any column can be classes, so that kind comes last.
    for name in sorted(TASK_KINDS, key=lambda name: name == "classes"):
        if (found := TASK_KINDS[name].guess(column)) is not None:
            return name, found
    raise ValueError("fits no kind of task")
