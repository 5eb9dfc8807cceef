"""Two runs' answers to the same rows become what one fixed of the other's, and what it broke."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.inference.intervals import DRAWS, Interval, draw_figures, mcnemar, take_middle

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from plait.tasks import TaskSpec
    from plait.tasks.kind import Floats

    Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of two runs."""

    run: float
    against: float
    interval: Interval
    """Of run minus against, at 95%, by drawing rows: both answer the same draws."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        figures = {"run": self.run, "against": self.against, "difference": self.run - self.against}
        plain = {key: v if np.isfinite(v) else None for key, v in figures.items()}
        return plain | {"interval": self.interval.to_json()}


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a run does otherwise than another."""

    fixed: Ints
    """Rows that it gets right and the other wrong, the other's worst first; of scores, those
    that it is nearer to, by how much."""
    broken: Ints
    """Rows that it gets wrong and the other right, its worst first; of scores, those that it is
    farther from, by how much."""
    p: float | None
    """McNemar's exact test of the two counts; None for scores."""
    metrics: dict[str, Difference]
    answers: list[str]
    """What the other run answers, in words."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values, rows counted only."""
        return {
            "fixed": len(self.fixed),
            "broken": len(self.broken),
            "p": self.p,
            "metrics": {name: metric.to_json() for name, metric in self.metrics.items()},
        }


def compare(
    spec: TaskSpec,
    labels: ArrayLike,
    answers: Floats,
    against: Floats,
    generator: np.random.Generator,
    *,
    draws: int = DRAWS,
    progress: Callable[[int, int], None] | None = None,
) -> Comparison:
    """Compare a run's answers with another's to the same rows."""
    truth = np.asarray(labels)
    ours, theirs = spec.kind.judge(truth, answers), spec.kind.judge(truth, against)
    gain = theirs.severity - ours.severity
    if ours.right is not None:
        gain = np.where(ours.right != theirs.right, gain, 0.0)
    order = np.argsort(-np.abs(gain), kind="stable")
    fixed, broken = order[gain[order] > 0], order[gain[order] < 0]

    def measure(rows: Ints) -> dict[str, float]:
        first = spec.kind.score(truth[rows], answers[rows]).metrics
        second = spec.kind.score(truth[rows], against[rows]).metrics
        return {name: first[name] - second[name] for name in first}

    drawn = draw_figures(measure, len(truth), generator, draws=draws, progress=progress)
    first = spec.kind.score(truth, answers).metrics
    second = spec.kind.score(truth, against).metrics
    metrics = {n: Difference(first[n], second[n], take_middle(drawn[n])) for n in first}
    p = None if ours.right is None else mcnemar(len(fixed), len(broken))
    return Comparison(fixed, broken, p, metrics, theirs.answers)
