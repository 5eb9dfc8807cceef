"""Compare two runs' answers to the same rows: changed rows, McNemar's test, paired bootstrap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.inference.intervals import (
    DRAWS,
    LEVEL,
    UNDEFINED,
    Interval,
    bootstrap_metrics,
    mcnemar,
    percentile_interval,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike

    from plait.tasks import TaskSpec
    from plait.tasks.kind import Floats, Ints


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric of two runs."""

    run: float
    against: float
    interval: Interval = UNDEFINED
    """95% interval of `value`; NaN if the runs did not answer the same rows."""

    @property
    def value(self) -> float:
        """The run's metric minus the other's."""
        return self.run - self.against

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes 0."""
        return self.interval.excludes(0)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; NaN is written as null."""
        values = {"run": self.run, "against": self.against, "difference": self.value}
        plain = {name: v if math.isfinite(v) else None for name, v in values.items()}
        return plain | {"interval": self.interval.to_json()}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences between two runs' answers to the same rows."""

    fixed: Ints
    """Rows that the run answers right and the other wrong, largest change first; for numbers,
    rows where the run is nearer to the label."""
    broken: Ints
    """Rows that the run answers wrong and the other right; for numbers, farther from the label."""
    p: float | None
    """p-value of McNemar's exact test; None for numbers."""
    metrics: dict[str, Difference]
    answers: list[str]
    """The other run's answers in words, one a row."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values; of the rows, their counts."""
        return {
            "fixed": len(self.fixed),
            "broken": len(self.broken),
            "p": self.p,
            "metrics": {name: metric.to_json() for name, metric in self.metrics.items()},
        }


def compare_answers(
    spec: TaskSpec,
    labels: ArrayLike,
    answers: Floats,
    against: Floats,
    *,
    seed: int = 0,
    draws: int = DRAWS,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compare a run's answers with another run's answers to the same rows.

    The interval of each metric is a paired bootstrap: both runs answer the same drawn rows, and
    samples in which a metric is undefined are left out. A few changed rows make bootstrap
    intervals too narrow, so the interval of an accuracy includes 0 unless McNemar's exact test
    is significant.
    """
    truth, kind = np.asarray(labels), spec.kind
    ours, theirs = kind.judge(truth, answers), kind.judge(truth, against)
    gain = theirs.severity - ours.severity
    if ours.right is not None:
        gain = np.where(ours.right != theirs.right, gain, 0.0)
    order = np.argsort(-np.abs(gain), kind="stable")
    fixed, broken = order[gain[order] > 0], order[gain[order] < 0]

    def subtract(rows: Ints) -> dict[str, float]:
        first, second = (kind.score(truth[rows], a[rows]).metrics for a in (answers, against))
        return {name: first[name] - second[name] for name in first}

    drawn: dict[str, Floats] = {}
    if len(truth) > 1:
        generator = np.random.default_rng(seed)
        drawn = bootstrap_metrics(subtract, len(truth), generator, draws=draws, progress=progress)
    first, second = (kind.score(truth, a).metrics for a in (answers, against))
    metrics = {n: Difference(first[n], second[n], _interval(drawn.get(n))) for n in first}
    p = None if ours.right is None else mcnemar(len(fixed), len(broken))
    if p is not None and p >= 1 - LEVEL:
        one = metrics[ours.metric]
        wide = Interval(min(one.interval.low, 0.0), max(one.interval.high, 0.0))
        metrics[ours.metric] = Difference(one.run, one.against, wide)
    return Comparison(fixed, broken, p, metrics, theirs.answers)


def _interval(values: Floats | None) -> Interval:
    return UNDEFINED if values is None else percentile_interval(values)
