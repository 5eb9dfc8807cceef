"""Compare rows by their scores over seeds, with variances moderated over all rows.

Most rows vary little from seed to seed and a few vary a lot. With two or three seeds, a row's own
variance is not known well. So the variance of a row is a weighted mean of its own and of the one
that all rows lead to expect (Smyth 2004, as in limma). The difference of two means whose variances
are estimated separately follows the Behrens-Fisher distribution, a sum of Student's t.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from statistics import fmean, variance
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import brentq
from scipy.special import digamma, erfc, polygamma
from scipy.stats import t as student

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LEVEL = 0.95
"""Confidence level of every interval."""

_NUM_DRAWS = 10_000
"""Draws for the distribution of a sum of t's; p-values near .05 are accurate to .002."""

Part = tuple[float, float]
"""Variance and degrees of freedom of a Student's t."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Variance from seed to seed, and how well it is known."""

    variance: float
    freedom: float
    """Degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Expected:
    """Distribution of the variances of all rows: a scaled inverse chi-squared one."""

    variance: float
    freedom: float
    """Prior degrees of freedom: its weight in seeds; infinite if all rows vary alike."""
    total: float
    """Degrees of freedom of all rows together."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Estimated difference of two groups of rows."""

    value: float
    parts: tuple[Spread, ...]
    """Variances that add up to that of the difference."""
    num_seeds: int
    """Seeds of the row with the fewest."""

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval."""
        reach = _sum_quantile(LEVEL, self._parts) if self._parts else 0.0
        return self.value - reach, self.value + reach

    def p_value(self, null: float = 0.0) -> float:
        """Return the two-sided p-value of the hypothesis that the difference is `null`."""
        distance = abs(self.value - null)
        if not self._parts:
            return 1.0 if distance == 0 else 0.0
        return _sum_tails(distance, self._parts)

    @property
    def _parts(self) -> tuple[Part, ...]:
        return tuple((part.variance, part.freedom) for part in self.parts if part.variance)


Row = tuple["Sequence[float]", Spread | None]
"""Scores over seeds and their own spread, None for one seed."""


def compare_moderated(
    better: Sequence[Row], worse: Sequence[Row], expected: Expected
) -> Difference:
    """Compare the means of two groups of rows."""
    parts = []
    for side in (better, worse):
        for scores, own in side:
            spread = moderate(own, expected)
            parts.append(Spread(spread.variance / len(scores) / len(side) ** 2, spread.freedom))
    if math.isinf(expected.freedom):  # one common variance, estimated once
        parts = [Spread(sum(part.variance for part in parts), expected.total)]
    means = [fmean(fmean(scores) for scores, _ in side) for side in (better, worse)]
    fewest = min(len(scores) for scores, _ in (*better, *worse))
    return Difference(means[0] - means[1], tuple(parts), fewest)


def own_spread(scores: Sequence[float], rounding: float = 0.0) -> Spread | None:
    """Return the spread of a row's scores, None for one seed.

    `rounding` is the smallest variance that is believed: a share of few dev rows is rounded.
    """
    if len(scores) < 2:
        return None
    return Spread(max(variance(scores), rounding), len(scores) - 1)


def moderate(own: Spread | None, expected: Expected) -> Spread:
    """Return the weighted mean of a row's own spread and the expected one."""
    if own is None:
        return Spread(expected.variance, min(expected.freedom, expected.total))
    if math.isinf(expected.freedom):
        return Spread(expected.variance, expected.total)
    freedom = expected.freedom + own.freedom
    weighted = expected.freedom * expected.variance + own.freedom * own.variance
    return Spread(weighted / freedom, min(freedom, expected.total))


def expect_spread(rows: Sequence[Spread]) -> Expected | None:
    """Fit the distribution of the rows' variances, None without rows.

    It is fitted by the mean and the variance of the logarithms of the variances (Smyth 2004).
    """
    if not rows:
        return None
    total = sum(row.freedom for row in rows)
    pooled = sum(row.freedom * row.variance for row in rows) / total
    seen = [row for row in rows if row.variance > 0]
    if len(seen) < 2:
        return Expected(pooled, math.inf, total)
    logs = [math.log(row.variance) + _log_bias(row.freedom) for row in seen]
    center = fmean(logs)
    excess = sum((log - center) ** 2 for log in logs) / (len(logs) - 1)
    excess -= fmean(_trigamma(row.freedom / 2) for row in seen)
    if excess <= 0:  # the variances differ no more than by chance
        return Expected(pooled, math.inf, total)
    freedom = 2 * brentq(lambda x: _trigamma(x) - excess, 1e-6, 1e9)
    return Expected(math.exp(center - _log_bias(freedom)), freedom, total)


def _log_bias(freedom: float) -> float:
    """Return how far the mean logarithm of an estimated variance is below that of the true one."""
    return math.log(freedom / 2) - float(digamma(freedom / 2))


def _trigamma(x: float) -> float:
    return float(polygamma(1, x))


def _sum_tails(x: float, parts: tuple[Part, ...]) -> float:
    """Return the probability that a sum of Student's t's is farther from 0 than `x`."""
    if len(parts) == 1:
        ((scale, freedom),) = parts
        return float(2 * student.sf(x / math.sqrt(scale), freedom))
    return float(erfc(x / _drawn_deviations(parts)).mean())


@lru_cache(maxsize=512)
def _sum_quantile(level: float, parts: tuple[Part, ...]) -> float:
    """Return the distance from 0 that a sum of Student's t's keeps with probability `level`."""
    if len(parts) == 1:
        ((scale, freedom),) = parts
        return float(math.sqrt(scale) * student.ppf((1 + level) / 2, freedom))
    high = math.sqrt(sum(scale for scale, _ in parts))
    while _sum_tails(high, parts) > 1 - level:
        high *= 2
    return float(brentq(lambda x: _sum_tails(x, parts) - 1 + level, 0.0, high, xtol=1e-9))


@lru_cache(maxsize=512)
def _drawn_deviations(parts: tuple[Part, ...]) -> NDArray[np.float64]:
    """Draw the standard deviation of a sum, times the square root of 2; always the same draws.

    Given the error of each estimated variance, the sum of t's is normal.
    """
    random = Random(0)
    total = np.zeros(_NUM_DRAWS)
    for scale, freedom in parts:
        half = freedom / 2
        drawn = [max(random.gammavariate(half, 1.0), 1e-300) for _ in range(_NUM_DRAWS)]
        total += scale * half / np.array(drawn)
    return np.sqrt(2 * total)
