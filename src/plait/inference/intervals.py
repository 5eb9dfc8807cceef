"""Confidence intervals and McNemar's test: Wilson, Newcombe, and the percentile bootstrap."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

LEVEL = 0.95
DRAWS = 1000

_CHUNK = 1 << 22
"""Numbers drawn at a time, so that memory does not grow with the rows."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Both ends of a confidence interval; NaN where it is undefined."""

    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Return whether a value lies outside."""
        return value < self.low or value > self.high

    def to_json(self) -> list[float | None]:
        """Return both ends as plain values; NaN is written as null."""
        return [end if math.isfinite(end) else None for end in (self.low, self.high)]


UNDEFINED = Interval(math.nan, math.nan)


def percentile_interval(values: ArrayLike, level: float = LEVEL) -> Interval:
    """Return the percentile interval of bootstrap values (Efron 1979); NaN is left out."""
    found = np.asarray(values, dtype=np.float64)
    found = found[np.isfinite(found)]
    if not len(found):
        return UNDEFINED
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def bootstrap_means(
    values: ArrayLike,
    generator: np.random.Generator,
    *,
    groups: ArrayLike | None = None,
    draws: int = DRAWS,
) -> Floats:
    """Return the means of bootstrap samples, [draws]; rows of the same group are drawn together."""
    numbers = np.asarray(values, dtype=np.float64)
    if not len(numbers):
        return np.full(draws, math.nan)
    named = np.arange(len(numbers)) if groups is None else np.asarray(groups)
    _, members = np.unique(named, return_inverse=True)
    sums, counts = np.bincount(members, numbers), np.bincount(members)
    size = max(1, _CHUNK // len(sums))
    means = []
    for done in range(0, draws, size):
        chosen = generator.integers(len(sums), size=(min(size, draws - done), len(sums)))
        means.append(sums[chosen].sum(axis=1) / counts[chosen].sum(axis=1))
    return np.concatenate(means)


def bootstrap_metrics(
    measure: Callable[[Ints], Mapping[str, float]],
    count: int,
    generator: np.random.Generator,
    *,
    draws: int = DRAWS,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Floats]:
    """Return the metrics that `measure` computes from bootstrap samples of row numbers, by name.

    `progress` is called with the draws done and the draws in total.
    """
    found: dict[str, list[float]] = {}
    for done in range(draws):
        for name, value in measure(generator.integers(count, size=count)).items():
            found.setdefault(name, []).append(value)
        if progress is not None:
            progress(done + 1, draws)
    return {name: np.array(values) for name, values in found.items()}


def share_interval(
    flags: ArrayLike, generator: np.random.Generator, *, groups: ArrayLike | None = None
) -> Interval:
    """Return the bootstrap interval of a share of rows; rows of a group are drawn together.

    If all rows are equal, so is every bootstrap sample. Then the exact interval (Clopper and
    Pearson 1934) of as many groups is returned.
    """
    from scipy.stats import binomtest

    values = np.asarray(flags, dtype=np.float64)
    interval = percentile_interval(bootstrap_means(values, generator, groups=groups))
    if not len(values) or values.min() != values.max():
        return interval
    count = len(values) if groups is None else len(np.unique(np.asarray(groups)))
    exact = binomtest(count * int(values[0]), count).proportion_ci(LEVEL)
    return Interval(float(exact.low), float(exact.high))


def wilson(hits: ArrayLike, rows: ArrayLike, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Return both ends of the Wilson intervals (1927) of shares of rows."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    count = np.asarray(rows, dtype=np.float64)
    share = np.asarray(hits, dtype=np.float64) / count
    middle = share + z**2 / (2 * count)
    half = z * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    whole = 1 + z**2 / count
    return np.maximum((middle - half) / whole, 0.0), np.minimum((middle + half) / whole, 1.0)


def wilson_bound(hits: ArrayLike, rows: ArrayLike, certainty: float = LEVEL) -> Floats:
    """Return the lower ends of the one-sided Wilson intervals of shares of rows."""
    return wilson(hits, rows, 2 * certainty - 1)[0]


def newcombe(
    hits: int, rows: int, other_hits: int, other_rows: int, level: float = LEVEL
) -> Interval:
    """Return the interval of the difference of two independent shares (Newcombe 1998, method 10).

    Unlike a bootstrap interval, it has a width if all rows of a share are equal.
    """
    share, other = hits / rows, other_hits / other_rows
    lows, highs = wilson([hits, other_hits], [rows, other_rows], level)
    low, high = share - lows[0], highs[1] - other
    return Interval(
        float(share - other - np.hypot(low, high)),
        float(share - other + np.hypot(highs[0] - share, other - lows[1])),
    )


def mcnemar(fixed: int, broken: int) -> float:
    """Return the p-value of McNemar's exact, two-sided test (1947); 1 for no changed rows."""
    from scipy.stats import binomtest

    return float(binomtest(fixed, fixed + broken).pvalue) if fixed + broken else 1.0
