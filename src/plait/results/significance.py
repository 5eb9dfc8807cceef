"""Figures over seeds become a difference with its interval: what is told, and what is noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import fmean, variance
from typing import TYPE_CHECKING

from plait.results.distributions import (
    digamma,
    inverse_trigamma,
    sum_quantile,
    sum_tails,
    trigamma,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LEVEL = 0.95
"""Of every interval."""

FEWEST_SEEDS = 3
"""Seeds that two sides must share to be tested seed by seed."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How much a figure varies from seed to seed, and how well that is known."""

    variance: float
    freedom: float
    """Degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Expected:
    """How much rows vary from seed to seed, before anything is known of one of them."""

    variance: float
    freedom: float
    """How alike they are in it: as good as so many seeds of one's own; infinite if all alike."""
    total: float
    """Degrees of freedom of all rows together."""


@dataclass(frozen=True, slots=True)
class Difference:
    """An estimated difference, how sure it is, and what it rests on."""

    value: float
    parts: tuple[Spread, ...]
    """What the error is the sum of, each with degrees of freedom of its own."""
    num_seeds: int
    """Seeds behind each side; of the side with fewer where they differ."""
    is_paired: bool
    """Whether the spread is that of the differences seed by seed."""

    @property
    def error(self) -> float:
        """Standard error."""
        return math.sqrt(sum(part.variance for part in self.parts))

    @property
    def interval(self) -> tuple[float, float]:
        """Where the difference lies, at the level of every interval."""
        reach = sum_quantile(LEVEL, self._parts) if self.error else 0.0
        return self.value - reach, self.value + reach

    def p_value(self, null: float = 0.0) -> float:
        """Return how often chance alone would be as far from `null`, on either side."""
        away = abs(self.value - null)
        if self.error == 0:
            return 1.0 if away == 0 else 0.0
        return sum_tails(away, self._parts)

    @property
    def _parts(self) -> tuple[tuple[float, float], ...]:
        return tuple((part.variance, part.freedom) for part in self.parts if part.variance)


# --- seed by seed ------------------------------------------------------------------------


def compare_paired(differences: Sequence[float], rounding: float = 0.0) -> Difference:
    """Make Student's paired test of differences, one a seed.

    `rounding` is the variance that rounding alone gives one of them; a smaller one is not believed.
    Differences of few dev rows are multiples of one row, and a few of them can well be all alike.
    """
    spread = max(variance(differences), rounding) / len(differences)
    own = Spread(spread, len(differences) - 1)
    return Difference(fmean(differences), (own,), len(differences), True)


# --- by what all rows tell of the spread -------------------------------------------------


def own_spread(row: Sequence[float], rounding: float = 0.0) -> Spread | None:
    """Return what a row's figures tell of its spread; none where there is but one."""
    if len(row) < 2:
        return None
    return Spread(max(variance(row), rounding), len(row) - 1)


def expect_spread(rows: Sequence[Spread]) -> Expected | None:
    """Return the spread that one more row would be expected to have; none where no row has any.

    Some settings vary far more than others. The rows' true variances are taken for draws of a
    scaled inverse chi-squared distribution, fitted by the mean and the variance of the logarithms
    of what was seen (Smyth 2004, as in limma).
    """
    if not rows:
        return None
    total = sum(row.freedom for row in rows)
    pooled = sum(row.freedom * row.variance for row in rows) / total
    seen = [row for row in rows if row.variance > 0]
    if len(seen) < 2:
        return Expected(pooled, math.inf, total)
    logs = [math.log(row.variance) + _log_bias(row.freedom) for row in seen]
    middle = fmean(logs)
    apart = sum((log - middle) ** 2 for log in logs) / (len(logs) - 1)
    apart -= fmean(trigamma(row.freedom / 2) for row in seen)
    if apart <= 0:  # no farther apart than chance alone has them
        return Expected(pooled, math.inf, total)
    freedom = 2 * inverse_trigamma(apart)
    return Expected(math.exp(middle - _log_bias(freedom)), freedom, total)


def _log_bias(freedom: float) -> float:
    """Return how far below its truth's the logarithm of a variance lies in the mean."""
    return math.log(freedom / 2) - digamma(freedom / 2)


def moderate(own: Spread | None, expected: Expected) -> Spread:
    """Return a row's spread, from its own seeds and from what is expected, by their weights."""
    if own is None:
        return Spread(expected.variance, min(expected.freedom, expected.total))
    if math.isinf(expected.freedom):
        return Spread(expected.variance, expected.total)
    freedom = expected.freedom + own.freedom
    weighed = expected.freedom * expected.variance + own.freedom * own.variance
    return Spread(weighed / freedom, min(freedom, expected.total))


def compare_moderated(
    better: Sequence[tuple[Sequence[float], Spread | None]],
    worse: Sequence[tuple[Sequence[float], Spread | None]],
    expected: Expected,
) -> Difference:
    """Compare the means of two groups of rows, each by its own spread and by that of all.

    A row is its figures over seeds, and its own spread. The difference of means whose variances are
    estimated apart is distributed as Behrens and Fisher have it: a sum of Student's, one a row.
    """
    parts = []
    for side in (better, worse):
        for row, own in side:
            spread = moderate(own, expected)
            parts.append(Spread(spread.variance / len(row) / len(side) ** 2, spread.freedom))
    if math.isinf(expected.freedom):  # then it is one variance, estimated once
        parts = [Spread(sum(part.variance for part in parts), expected.total)]
    means = [fmean(fmean(row) for row, _ in side) for side in (better, worse)]
    fewest = min(len(row) for row, _ in (*better, *worse))
    return Difference(means[0] - means[1], tuple(parts), fewest, False)


# --- the dev rows' own error -------------------------------------------------------------


def accuracy_variance(value: float, num_examples: int) -> float:
    """Return the sampling variance of an accuracy: a binomial share's."""
    return value * (1 - value) / num_examples


def correlation_variance(value: float, num_examples: int) -> float:
    """Return the sampling variance of a correlation: Fisher's, carried back from z to r."""
    return (1 - value**2) ** 2 / max(num_examples - 3, 1)


# --- many tests --------------------------------------------------------------------------


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Correct p-values for their number, by Holm's steps."""
    corrected: dict[str, float] = {}
    least = 0.0
    for place, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        least = max(least, min(1.0, (len(p_values) - place) * p_values[name]))
        corrected[name] = least
    return corrected
