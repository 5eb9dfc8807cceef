"""Figures over seeds become a difference with its interval: what is told, and what is noise.

Written out here, since scipy is no dependency of plait; the tests hold it against scipy's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist, fmean, variance
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LEVEL = 0.95
"""Of every interval."""

FEWEST_SEEDS = 3
"""Seeds that two sides must share before their own spread is trusted."""

_NEARLY_NORMAL = 1e7
"""Degrees of freedom from which on Student's distribution is taken for the normal one."""


@dataclass(frozen=True, slots=True)
class Difference:
    """An estimated difference, how sure it is, and what it rests on."""

    value: float
    error: float
    """Standard error."""
    freedom: float
    """Degrees of freedom of the error; infinite where it is known."""
    num_seeds: int
    """Seeds behind each side; of the side with fewer where they differ."""
    is_paired: bool
    """Whether the spread is that of the differences seed by seed."""

    @property
    def interval(self) -> tuple[float, float]:
        """Where the difference lies, at the level of every interval."""
        reach = self.error * student_quantile(LEVEL, self.freedom)
        return self.value - reach, self.value + reach

    def p_value(self, null: float = 0.0) -> float:
        """Return how often chance alone would be as far from `null`, on either side."""
        away = abs(self.value - null)
        if self.error == 0:
            return 1.0 if away == 0 else 0.0
        return student_tails(away / self.error, self.freedom)


@dataclass(frozen=True, slots=True)
class Spread:
    """How much a figure varies from seed to seed: a standard deviation."""

    deviation: float
    freedom: float


def compare_paired(differences: Sequence[float], rounding: float = 0.0) -> Difference:
    """Make Student's paired test of differences, one a seed.

    `rounding` is the variance that rounding alone gives one of them; a smaller one is not believed.
    Differences of few dev rows are multiples of one row, and a few of them can well be all alike.
    """
    spread = max(variance(differences), rounding)
    error = math.sqrt(spread / len(differences))
    return Difference(fmean(differences), error, len(differences) - 1, len(differences), True)


def compare_pooled(
    better: Sequence[Sequence[float]],
    worse: Sequence[Sequence[float]],
    spread: Spread,
    sampling: float,
) -> Difference:
    """Compare the means of two groups of rows by a spread that was pooled from all rows.

    A row is its figures over seeds. `sampling` is the variance of the difference that comes
    from the dev rows; it has no degrees of freedom to lose, so Welch and Satterthwaite's
    formula has one term.
    """
    seeds = sum(_share(rows) for rows in (better, worse)) * spread.deviation**2
    total = seeds + sampling
    freedom = spread.freedom * (total / seeds) ** 2 if seeds else math.inf
    value = fmean(map(fmean, better)) - fmean(map(fmean, worse))
    fewest = min(len(row) for row in (*better, *worse))
    return Difference(value, math.sqrt(total), freedom, fewest, False)


def _share(rows: Sequence[Sequence[float]]) -> float:
    """Return the variance of a mean of rows' means, in units of one run's variance."""
    return sum(1 / len(row) for row in rows) / len(rows) ** 2


def pool_spread(rows: Iterable[Sequence[float]]) -> Spread | None:
    """Return the spread over seeds within rows; none where no row has two seeds.

    Rows differ in how much they vary, and a few of them may make up most of the spread. So its
    degrees of freedom are Satterthwaite's: as many as the seeds give where all rows vary alike,
    and fewer the less they do.
    """
    several = [(len(row) - 1, variance(row)) for row in rows if len(row) > 1]
    if not several:
        return None
    freedom = sum(own for own, _ in several)
    squares = sum(own * spread for own, spread in several)
    fourth = sum(own * spread**2 for own, spread in several)
    return Spread(math.sqrt(squares / freedom), squares**2 / fourth if fourth else freedom)


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


# --- Student's distribution --------------------------------------------------------------


def student_tails(t: float, freedom: float) -> float:
    """Return the chance that Student's t is farther from 0 than `t`."""
    if freedom >= _NEARLY_NORMAL:
        return math.erfc(abs(t) / math.sqrt(2))
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def student_quantile(level: float, freedom: float) -> float:
    """Return how far from 0 Student's t stays with the chance `level`."""
    if freedom >= _NEARLY_NORMAL:
        return NormalDist().inv_cdf((1 + level) / 2)
    low, high = 0.0, 1.0
    while student_tails(high, freedom) > 1 - level:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if student_tails(middle, freedom) > 1 - level:
            low = middle
        else:
            high = middle
    return high


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on one side only
        return 1 - _incomplete_beta(b, a, 1 - x)
    log_front = a * math.log(x) + b * math.log1p(-x)
    log_front += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    # Lentz's method: the fraction grows by a factor c * d a term.
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(log_front) * fraction / a
