"""Two runs' answers become a difference that can be trusted or not; two recipes, what differs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plait.config import list_settings
from plait.inference.intervals import DRAWS, LEVEL, draw_figures, mcnemar, take_middle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.config import RunConfig
    from plait.inference.fitting.answers import TaskAnswers
    from plait.tasks import TaskSpec
    from plait.tasks.kind import Floats, Ints


@dataclass(frozen=True, slots=True)
class Difference:
    """How much more of a figure one has than the other, and where 95% of the draws lie."""

    value: float
    low: float = math.nan
    high: float = math.nan
    """nan where the two did not answer the same rows, so that nothing can be drawn in pairs."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0


def compare(
    mine: TaskAnswers, theirs: TaskAnswers, progress: Callable[[int, int], None] | None = None
) -> Difference:
    """Return how much more of its figure a task has in the first of two runs."""
    metric = mine.metric
    if not mine.has_rows_of(theirs):
        other = theirs.score().metrics.get(metric, math.nan)  # it may be of another kind
        return Difference(mine.score().metrics[metric] - other)
    return paired_bootstrap(
        mine.spec, metric, mine.labels, mine.answers, theirs.answers, progress=progress
    )


def paired_bootstrap(
    spec: TaskSpec,
    metric: str,
    labels: Floats,
    mine: Floats,
    theirs: Floats,
    *,
    draws: int = DRAWS,
    progress: Callable[[int, int], None] | None = None,
) -> Difference:
    """Draw the same rows for both again and again, and see where the difference falls.

    What other dev sets like this one might have said; it knows nothing of other seeds. Draws in
    which a figure does not exist are left out. Of a handful of rows that only one of the two gets
    right, draws are too sure: the interval leaves 0 out only where McNemar's exact test agrees.
    """

    def subtract(rows: Ints) -> dict[str, float]:
        one, other = (
            spec.kind.score(labels[rows], a[rows]).metrics[metric] for a in (mine, theirs)
        )
        return {metric: one - other}

    count = len(labels)
    whole = subtract(np.arange(count))[metric]
    if count < 2:
        return Difference(whole)
    generator = np.random.default_rng(0)
    drawn = draw_figures(subtract, count, generator, draws=draws, progress=progress)
    interval = take_middle(drawn[metric])
    one, other = (spec.kind.judge(labels, answers) for answers in (mine, theirs))
    if one.metric == metric and one.right is not None and other.right is not None:
        fixed, broken = int((one.right > other.right).sum()), int((one.right < other.right).sum())
        if mcnemar(fixed, broken) >= 1 - LEVEL:
            return Difference(whole, min(interval.low, 0.0), max(interval.high, 0.0))
    return Difference(whole, interval.low, interval.high)


def differing_settings(configs: Sequence[RunConfig]) -> dict[str, list[str]]:
    """Return every setting that is not the same in all recipes, as it is in each of them."""
    tables = [list_settings(config) for config in configs]
    keys = dict.fromkeys(key for table in tables for key in table)
    rows = {key: [table.get(key) for table in tables] for key in keys}
    return {
        key: ["unset" if value is None else str(value) for value in values]
        for key, values in rows.items()
        if any(value != values[0] for value in values[1:])
    }
