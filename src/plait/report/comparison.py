"""Two runs' answers become a difference that can be trusted or not; two recipes, what differs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.config.saving import flatten
from plait.evaluate import score_task

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from plait.config import RunConfig
    from plait.evaluate import Floats
    from plait.report.answers import TaskAnswers
    from plait.types import TaskSpec

DRAWS = 1000
LEVEL = 0.95


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

    The percentile interval of Efron (1979): what other dev sets like this one might have said.
    It knows nothing of other seeds. Draws in which a figure does not exist are left out.
    """

    def subtract(rows: Any) -> float:
        one, other = (
            score_task(spec, labels[rows], a[rows]).metrics[metric] for a in (mine, theirs)
        )
        return one - other

    generator = np.random.default_rng(0)
    count = len(labels)
    found = []
    for number in range(draws if count > 1 else 0):
        found.append(subtract(generator.integers(count, size=count)))
        if progress is not None and number % 50 == 49:
            progress(number + 1, draws)
    kept = [value for value in found if math.isfinite(value)]
    whole = subtract(slice(None))
    if not kept:
        return Difference(whole)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(kept, [tail, 1 - tail])
    return Difference(whole, float(low), float(high))


def differing_settings(configs: Sequence[RunConfig]) -> dict[str, list[str]]:
    """Return every setting that is not the same in all recipes, as it is in each of them."""
    tables = [flatten(config) for config in configs]
    keys = dict.fromkeys(key for table in tables for key in table)
    rows = {key: [table.get(key) for table in tables] for key in keys}
    return {
        key: ["unset" if value is None else str(value) for value in values]
        for key, values in rows.items()
        if any(value != values[0] for value in values[1:])
    }
