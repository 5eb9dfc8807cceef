"""Metrics: functions of labels and answers. An undefined metric is NaN, never an error."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from plait.errors import RecipeError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.tasks.kind import Kind

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
    return class_rates(np.stack(sums, axis=1))


def class_rates(counts: Ints) -> tuple[Floats, Floats, Floats]:
    """Return precision, recall and F1 from hits, predicted and true rows, [classes, 3]."""
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


def list_classes(
    labels: Sequence[str], precision: Floats, recall: Floats, f1: Floats, support: Ints
) -> list[dict[str, str | int | float]]:
    """Return a row of figures for each class or label."""
    return [
        {
            "label": label,
            "precision": float(precision[i]),
            "recall": float(recall[i]),
            "f1": float(f1[i]),
            "support": int(support[i]),
        }
        for i, label in enumerate(labels)
    ]


def primary_metric(kind: Kind, chosen: str | None) -> str:
    """Return the name of a task's primary metric, after checking a chosen one."""
    names = kind.metrics
    if chosen is None:
        return names[0]
    growing = [name for name in names if name not in LESS_IS_BETTER]
    if chosen not in names:
        raise RecipeError(
            f"metric {chosen!r} does not suit a task of kind {kind.name!r}"
            f"{suggest(chosen, growing)}"
        )
    if chosen in LESS_IS_BETTER:
        raise RecipeError(
            f"metric {chosen!r} cannot be the primary metric of a task, since less of it is "
            f"better; it is reported anyway, so choose one of {', '.join(growing)}"
        )
    return chosen


def format_number(value: float | None, places: int = 3) -> str:
    """Write a metric with a number of decimals; "none" if it is undefined."""
    if value is None or not math.isfinite(value):
        return "none"
    text = f"{value:.{places}f}"
    return text.removeprefix("-") if float(text) == 0 else text


# --- several tasks -----------------------------------------------------------------------


def summarise(
    primary: Mapping[str, float], kinds: Mapping[str, Kind | type[Kind]]
) -> dict[str, float]:
    """Summarise the tasks' primary metrics in three ways.

    sum: their sum. mean: their mean. overall: their mean after a correlation r is moved to
    (1 + r) / 2, so that every metric is between 0 and 1. NaN counts as 0. Without tasks all
    three are NaN.
    """
    if not primary:
        return dict.fromkeys(("sum", "mean", "overall"), math.nan)
    values = {task: 0.0 if math.isnan(value) else value for task, value in primary.items()}
    moved = [kinds[task].to_unit(value) for task, value in values.items()]
    total = sum(values.values())
    return {"sum": total, "mean": total / len(values), "overall": sum(moved) / len(moved)}
