"""A figure becomes a figure with its uncertainty: bootstrap intervals, Wilson's, McNemar's test.

The bootstrap draws as many rows as there are, with replacement, many times over, and takes the
middle of what the figure comes to (Efron 1979, percentile intervals). It knows of the rows that
are there and of no others: of a handful of rows it says little, and too surely.
"""

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
    """Where a figure lies, as far as the rows can tell; nan where they cannot."""

    low: float
    high: float

    def excludes(self, value: float) -> bool:
        """Say whether a value lies outside."""
        return value < self.low or value > self.high

    def to_json(self) -> list[float | None]:
        """Return both ends as plain values."""
        return [end if math.isfinite(end) else None for end in (self.low, self.high)]


def take_middle(values: ArrayLike, level: float = LEVEL) -> Interval:
    """Return what the middle of the values lies between, those that are nan left out."""
    found = np.asarray(values, dtype=np.float64)
    found = found[np.isfinite(found)]
    if not len(found):
        return Interval(math.nan, math.nan)
    low, high = np.quantile(found, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def draw_means(
    values: ArrayLike,
    generator: np.random.Generator,
    *,
    groups: ArrayLike | None = None,
    draws: int = DRAWS,
) -> Floats:
    """Return the mean of each of many draws of rows, [draws].

    With `groups`, rows of one number are drawn together: what was made of one text is no more
    independent than one text.
    """
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


def draw_share(
    flags: ArrayLike,
    generator: np.random.Generator,
    *,
    groups: ArrayLike | None = None,
) -> Interval:
    """Return the interval of a share of rows, groups drawn together.

    Where all rows are alike, draws are too, and say less than is so: none of 10 may well be one
    of 20. Then the exact bound of that many groups stands in (Clopper and Pearson 1934).
    """
    values = np.asarray(flags, dtype=np.float64)
    interval = take_middle(draw_means(values, generator, groups=groups))
    if not len(values) or values.min() != values.max():
        return interval
    count = len(values) if groups is None else len(np.unique(np.asarray(groups)))
    slack = 1 - ((1 - LEVEL) / 2) ** (1 / count)
    return Interval(0.0, slack) if values[0] == 0 else Interval(1 - slack, 1.0)


def draw_figures(
    measure: Callable[[Ints], Mapping[str, float]],
    count: int,
    generator: np.random.Generator,
    *,
    draws: int = DRAWS,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Floats]:
    """Return the figures that `measure` makes of each of many draws of row numbers, by name.

    `progress` is called with draws done and draws in all.
    """
    found: dict[str, list[float]] = {}
    for done in range(draws):
        for name, value in measure(generator.integers(count, size=count)).items():
            found.setdefault(name, []).append(value)
        if progress is not None:
            progress(done + 1, draws)
    return {name: np.array(values) for name, values in found.items()}


def wilson(hits: ArrayLike, rows: ArrayLike, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Return both ends of Wilson's interval of a share of rows (1927), of many shares at once."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    count = np.asarray(rows, dtype=np.float64)
    share = np.asarray(hits, dtype=np.float64) / count
    middle = share + z**2 / (2 * count)
    half = z * np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    whole = 1 + z**2 / count
    return np.maximum((middle - half) / whole, 0.0), np.minimum((middle + half) / whole, 1.0)


def subtract_shares(
    hits: int, rows: int, other_hits: int, other_rows: int, level: float = LEVEL
) -> Interval:
    """Return the interval of how much larger a share is than another's, of other rows.

    Newcombe's (1998, his method 10), of both shares' Wilson intervals. Unlike draws, it knows
    that a share may vary though all of its few rows are alike.
    """
    share, other = hits / rows, other_hits / other_rows
    (low, high), (other_low, other_high) = (
        [float(end) for end in wilson(*counts, level)]
        for counts in ((hits, rows), (other_hits, other_rows))
    )
    return Interval(
        share - other - math.hypot(share - low, other_high - other),
        share - other + math.hypot(high - share, other - other_low),
    )


def wilson_bound(hits: ArrayLike, rows: ArrayLike, certainty: float = LEVEL) -> Floats:
    """Return what shares of rows are at least: the lower end of Wilson's one-sided interval.

    With a certainty of 95%, 52 rows that are all right make a share of .95, 20 make .88.
    """
    return wilson(hits, rows, 2 * certainty - 1)[0]


def mcnemar(fixed: int, broken: int) -> float:
    """Return how often chance alone parts the changed rows so unevenly, or more so.

    McNemar's test (1947) in its exact, two-sided form: were neither of two models the better,
    each row that one of them gets right and the other wrong would fall to either like a coin.
    """
    count, fewer = fixed + broken, min(fixed, broken)
    # In logarithms, since the powers of two would not fit.
    terms = [
        math.lgamma(count + 1)
        - math.lgamma(k + 1)
        - math.lgamma(count - k + 1)
        - count * math.log(2)
        for k in range(fewer + 1)
    ]
    return min(1.0, 2 * math.fsum(map(math.exp, terms)))
