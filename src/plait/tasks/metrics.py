"""A model's answers become figures: the scoring pass, metrics of a task, summaries over tasks.

A figure that does not exist (a correlation with something constant, a mean over no
examples) is nan here and null in JSON, never an error: a collapsed model must still
be reported.
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plait.errors import RecipeError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.types import Kind, TaskSpec

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CLASS_METRICS = ("accuracy", "macro_precision", "macro_recall", "macro_f1", "log_loss")

METRICS: dict[Kind, tuple[str, ...]] = {
    "classes": _CLASS_METRICS,
    "binary": _CLASS_METRICS,
    # Micro F1 first: a label with two dev rows can move a macro mean by more than all others.
    "labels": (
        "micro_f1",
        "micro_precision",
        "micro_recall",
        "macro_f1",
        "subset_accuracy",
        "mean_average_precision",
        "log_loss",
    ),
    "score": ("pearson", "spearman", "mse", "mae"),
}
"""Every figure a task of a kind is scored by; the first stands for the task unless chosen."""

LESS_IS_BETTER = frozenset({"log_loss", "mse", "mae"})


def metric_span(metric: str) -> tuple[float, float]:
    """Return the least and the greatest value that a figure can have."""
    if metric in LESS_IS_BETTER:
        return 0.0, math.inf
    return (-1.0 if metric in ("pearson", "spearman") else 0.0), 1.0


# --- classes -----------------------------------------------------------------------------


def accuracy(labels: ArrayLike, predicted: ArrayLike) -> float:
    """Return the part of the examples whose class is right; nan for none."""
    true, guess = _same_length(labels, predicted, np.int64)
    return float(np.mean(true == guess)) if len(true) else math.nan


def confusion_matrix(labels: ArrayLike, predicted: ArrayLike, num_classes: int) -> Ints:
    """Count examples by true class (rows) and predicted class (columns)."""
    true, guess = _same_length(labels, predicted, np.int64)
    for name, values in (("labels", true), ("predicted", guess)):
        if len(values) and not (values.min() >= 0 and values.max() < num_classes):
            raise ValueError(
                f"{name} run from {values.min()} to {values.max()}, "
                f"outside the {num_classes} classes"
            )
    counts = np.bincount(true * num_classes + guess, minlength=num_classes**2)
    return counts.reshape(num_classes, num_classes).astype(np.int64)


def precision_recall_f1(confusion: Ints) -> tuple[Floats, Floats, Floats]:
    """Return each class's precision, recall and F1; 0 where there is nothing to divide by."""
    sums = (np.diag(confusion), confusion.sum(axis=0), confusion.sum(axis=1))
    return _rates(np.stack(sums, axis=1))


def _rates(counts: Ints) -> tuple[Floats, Floats, Floats]:
    """Turn hits, rows guessed and rows true of each class, [classes, 3], into the three."""
    hits, guessed, support = counts[:, 0].astype(np.float64), counts[:, 1], counts[:, 2]
    return (
        _divide(hits, guessed),
        _divide(hits, support),
        _divide(2 * hits, guessed + support),
    )


def log_loss(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Return the mean of -ln(probability of the true class); nan for no examples.

    A probability of 0 counts as the smallest step of float64 (about 36 nats).
    """
    chances = np.asarray(probabilities, dtype=np.float64)
    true = np.asarray(labels).astype(np.int64)
    if not len(true):
        return math.nan
    of_truth = chances[np.arange(len(true)), true]
    return float(-np.mean(np.log(np.clip(of_truth, np.finfo(np.float64).eps, None))))


# --- labels ------------------------------------------------------------------------------


def label_counts(labels: ArrayLike, predicted: ArrayLike) -> Ints:
    """Count for each label the rows where it is found rightly, found, and true: [labels, 3]."""
    true, guess = np.asarray(labels).astype(bool), np.asarray(predicted).astype(bool)
    if true.ndim != 2 or true.shape != guess.shape:
        raise ValueError(f"two tables of 0 and 1 are needed, not {true.shape} and {guess.shape}")
    columns = ((true & guess).sum(axis=0), guess.sum(axis=0), true.sum(axis=0))
    return np.stack(columns, axis=1).astype(np.int64)


def subset_accuracy(labels: ArrayLike, predicted: ArrayLike) -> float:
    """Return the part of the examples whose labels are all right and no others; nan for none."""
    true, guess = np.asarray(labels).astype(bool), np.asarray(predicted).astype(bool)
    return float((true == guess).all(axis=1).mean()) if len(true) else math.nan


def average_precision(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Return one label's precision over all thresholds, weighted by the rise in recall.

    Rows of one probability come at once. nan where no row has the label.
    """
    true = np.asarray(labels).astype(bool)
    chances = np.asarray(probabilities, dtype=np.float64)
    if not true.any():
        return math.nan
    order = np.argsort(-chances, kind="stable")
    last = np.flatnonzero(np.append(np.diff(chances[order]) != 0, True))
    hits = true[order].cumsum()[last]
    rises = np.diff(hits, prepend=0) / true.sum()
    return float(rises @ (hits / (last + 1)))


def label_log_loss(labels: ArrayLike, probabilities: ArrayLike) -> float:
    """Return the mean of -ln(probability of what is true) over labels and examples."""
    chances = np.asarray(probabilities, dtype=np.float64)
    of_truth = np.where(np.asarray(labels).astype(bool), chances, 1 - chances)
    if not of_truth.size:
        return math.nan
    return float(-np.mean(np.log(np.clip(of_truth, np.finfo(np.float64).eps, None))))


# --- scores ------------------------------------------------------------------------------


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Return the linear correlation; nan where either is constant, not finite or below two."""
    a, b = _same_length(x, y, np.float64)
    if len(a) < 2 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return math.nan
    if (a == a[0]).all() or (b == b[0]).all():
        return math.nan
    a, b = a - a.mean(), b - b.mean()
    length = np.linalg.norm(a) * np.linalg.norm(b)
    # Rounding can carry a perfect correlation just past 1.
    return float(np.clip(a @ b / length, -1.0, 1.0)) if length > 0 else math.nan


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Return the correlation of the ranks, ties at their average rank; nan as for `pearson`."""
    a, b = _same_length(x, y, np.float64)
    if np.isnan(a).any() or np.isnan(b).any():
        return math.nan
    return pearson(_ranks(a), _ranks(b))


def mse(labels: ArrayLike, predicted: ArrayLike) -> float:
    """Return the mean squared error; nan for no examples."""
    true, guess = _same_length(labels, predicted, np.float64)
    return float(np.mean((true - guess) ** 2)) if len(true) else math.nan


def mae(labels: ArrayLike, predicted: ArrayLike) -> float:
    """Return the mean absolute error; nan for no examples."""
    true, guess = _same_length(labels, predicted, np.float64)
    return float(np.mean(np.abs(true - guess))) if len(true) else math.nan


def _ranks(values: Floats) -> Floats:
    """Rank from 1, ties at the average of the ranks they share."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    average: Floats = np.cumsum(counts) - (counts - 1) / 2
    return average[group]


def _divide(above: Floats, below: Ints) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=below != 0)


def _same_length(x: ArrayLike, y: ArrayLike, dtype: Any) -> tuple[Any, Any]:
    a, b = np.asarray(x).astype(dtype), np.asarray(y).astype(dtype)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"two lists of the same length are needed, not {a.shape} and {b.shape}")
    return a, b


# --- a task ------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskScores:
    """Everything one task was scored by."""

    kind: Kind
    num_examples: int
    metrics: dict[str, float]
    """By the names in METRICS; nan where a figure does not exist."""
    per_class: list[dict[str, str | int | float]]
    """label, precision, recall, f1, support of each class or label. Empty for a score."""
    confusion: list[list[int]] | None
    """Counts, rows true and columns predicted. None but for classes."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with None for every figure that is not a finite number."""
        metrics = {k: v if math.isfinite(v) else None for k, v in self.metrics.items()}
        return asdict(self) | {"metrics": metrics}


def score_task(spec: TaskSpec, labels: ArrayLike, predictions: ArrayLike) -> TaskScores:
    """Score class probabilities [examples, classes], or scores [examples] in the task's units.

    The class predicted is the most probable one, the first of equals; the labels predicted are
    those whose probability reaches the task's threshold.
    """
    if spec.kind == "labels":
        return _score_labels(spec, labels, predictions)
    if spec.kind == "score":
        functions = {"pearson": pearson, "spearman": spearman, "mse": mse, "mae": mae}
        figures = {name: function(labels, predictions) for name, function in functions.items()}
        return TaskScores(spec.kind, len(np.asarray(labels)), figures, [], None)

    probabilities = np.asarray(predictions, dtype=np.float64)
    true = np.asarray(labels).astype(np.int64)
    num_classes = len(spec.labels)
    if probabilities.shape != (len(true), num_classes):
        raise ValueError(f"probabilities are {probabilities.shape}, not {(len(true), num_classes)}")
    predicted = probabilities.argmax(axis=1)
    confusion = confusion_matrix(true, predicted, num_classes)
    precision, recall, f1 = precision_recall_f1(confusion)
    metrics = {
        "accuracy": accuracy(true, predicted),
        # Classes that never occur count in the macro averages, as zeros.
        "macro_precision": float(precision.mean()),
        "macro_recall": float(recall.mean()),
        "macro_f1": float(f1.mean()),
        "log_loss": log_loss(true, probabilities),
    }
    per_class = _list_classes(spec, precision, recall, f1, confusion.sum(axis=1))
    return TaskScores(spec.kind, len(true), metrics, per_class, confusion.tolist())


def _score_labels(spec: TaskSpec, labels: ArrayLike, predictions: ArrayLike) -> TaskScores:
    """Score probabilities [examples, labels] against 0 and 1."""
    probabilities = np.asarray(predictions, dtype=np.float64)
    true = np.asarray(labels)
    if true.shape != (len(true), len(spec.labels)) or probabilities.shape != true.shape:
        raise ValueError(f"labels are {true.shape} and probabilities {probabilities.shape}")
    predicted = probabilities >= spec.threshold
    counts = label_counts(true, predicted)
    precision, recall, f1 = _rates(counts)
    micro = [float(rate[0]) for rate in _rates(counts.sum(axis=0, keepdims=True))]
    averages = [average_precision(true[:, i], chances) for i, chances in enumerate(probabilities.T)]
    known = [value for value in averages if not math.isnan(value)]
    metrics = {
        "micro_f1": micro[2],
        "micro_precision": micro[0],
        "micro_recall": micro[1],
        # Labels that never occur count in the macro average, as zeros.
        "macro_f1": float(f1.mean()),
        "subset_accuracy": subset_accuracy(true, predicted),
        "mean_average_precision": float(np.mean(known)) if known else math.nan,
        "log_loss": label_log_loss(true, probabilities),
    }
    per_label = _list_classes(spec, precision, recall, f1, counts[:, 2])
    return TaskScores(spec.kind, len(true), metrics, per_label, None)


def _list_classes(
    spec: TaskSpec, precision: Floats, recall: Floats, f1: Floats, support: Ints
) -> list[dict[str, str | int | float]]:
    return [
        {
            "label": label,
            "precision": float(precision[i]),
            "recall": float(recall[i]),
            "f1": float(f1[i]),
            "support": int(support[i]),
        }
        for i, label in enumerate(spec.labels)
    ]


def has_numbers(labels: Sequence[str]) -> bool:
    """Say whether there are numbers among the labels, which a class's own could be taken for."""
    return any(re.fullmatch(r"[-+]?\d+([.,]\d+)?", label) for label in labels)


def name_classes(labels: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return what to call each class where it has a row, and, shorter, where it has a column.

    That is its number, and the label in rows. Where labels are numbers themselves, as priorities
    from 1 to 5, no other numbers stand beside them: "as 2" would be taken for the label 2.
    """
    if has_numbers(labels):
        return [*labels], [*labels]
    return [f"{i} {label}" for i, label in enumerate(labels)], [str(i) for i in range(len(labels))]


def primary_metric(spec: TaskSpec, chosen: str | None) -> str:
    """Return the name of the figure that stands for a task, after checking a chosen one."""
    names = METRICS[spec.kind]
    if chosen is None:
        return names[0]
    if chosen not in names:
        raise RecipeError(
            f"metric {chosen!r} does not suit a task of kind {spec.kind!r}"
            f"{suggest(chosen, set(names) - LESS_IS_BETTER)}"
        )
    if chosen in LESS_IS_BETTER:
        growing = ", ".join(n for n in names if n not in LESS_IS_BETTER)
        raise RecipeError(
            f"metric {chosen!r} cannot stand for a task, since less of it is better; "
            f"it is reported anyway, so choose one of {growing}"
        )
    return chosen


def baseline_predictions(spec: TaskSpec, train_labels: ArrayLike, n: int) -> Floats:
    """Predict `n` examples without reading them, in the shape `score_task` takes.

    Classes get their training frequencies, so the most frequent one is predicted; so do labels,
    of which those are predicted that as many rows have as the threshold says; a score gets the
    training mean.
    """
    labels = np.asarray(train_labels)
    if not len(labels):
        raise ValueError("a baseline needs training labels")
    if spec.kind == "score":
        return np.full(n, labels.mean(dtype=np.float64))
    if spec.kind == "labels":
        return np.tile(labels.mean(axis=0, dtype=np.float64), (n, 1))
    counts = np.bincount(labels.astype(np.int64), minlength=len(spec.labels))
    return np.tile(counts / len(labels), (n, 1))


# --- several tasks -----------------------------------------------------------------------


def summarise(primary: Mapping[str, float], kinds: Mapping[str, Kind]) -> dict[str, float]:
    """Make one figure of the tasks' primary ones, in three ways.

    sum: their sum. mean: their mean. overall: their mean after a score's correlation r is
    moved to (1 + r) / 2, so that every task runs from 0 to 1 and chance correlation is 0.5.
    A nan counts as 0: no correlation, nothing right. Without tasks all three are nan.
    """
    if not primary:
        return dict.fromkeys(("sum", "mean", "overall"), math.nan)
    values = {task: 0.0 if math.isnan(value) else value for task, value in primary.items()}
    moved = [(1 + v) / 2 if kinds[task] == "score" else v for task, v in values.items()]
    total = sum(values.values())
    return {"sum": total, "mean": total / len(values), "overall": sum(moved) / len(moved)}


# --- the scoring pass --------------------------------------------------------------------
