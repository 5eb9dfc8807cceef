"""Distributions of differences, and what fitting a prior to variances takes.

Written out here, since scipy is no dependency of plait; the tests hold it against scipy's.
"""

from __future__ import annotations

import math
from functools import lru_cache
from random import Random
from statistics import NormalDist, fmean

_NEARLY_NORMAL = 1e7
"""Degrees of freedom from which on Student's distribution is taken for the normal one."""

_NUM_DRAWS = 10_000
"""Of the variances of a sum; p-values of .05 are within .002."""


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


# --- sums of Student's distributions -----------------------------------------------------


def sum_tails(x: float, parts: tuple[tuple[float, float], ...]) -> float:
    """Return the chance that a sum of Student's t's is farther from 0 than `x`.

    A part is a variance that the t is stretched by and its degrees of freedom. Given how much each
    part's variance was mistaken, the sum is normal; so this is a mean over draws of that.
    """
    if len(parts) == 1:
        ((scale, freedom),) = parts
        return student_tails(x / math.sqrt(scale), freedom)
    return fmean(math.erfc(abs(x) / away) for away in _drawn_deviations(parts))


@lru_cache(maxsize=512)
def sum_quantile(level: float, parts: tuple[tuple[float, float], ...]) -> float:
    """Return how far from 0 a sum of Student's t's stays with the chance `level`."""
    if len(parts) == 1:
        ((scale, freedom),) = parts
        return math.sqrt(scale) * student_quantile(level, freedom)
    low, high = 0.0, math.sqrt(sum(scale for scale, _ in parts))
    while sum_tails(high, parts) > 1 - level:
        low, high = high, 2 * high
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if sum_tails(middle, parts) > 1 - level else (low, middle)
    return high


@lru_cache(maxsize=512)
def _drawn_deviations(parts: tuple[tuple[float, float], ...]) -> list[float]:
    """Draw the sum's standard deviation, times the root of 2; the same draws at every call."""
    random = Random(0)
    totals = [0.0] * _NUM_DRAWS
    for scale, freedom in parts:
        half = freedom / 2
        for i in range(_NUM_DRAWS):
            totals[i] += scale * half / max(random.gammavariate(half, 1.0), 1e-300)
    return [math.sqrt(2 * total) for total in totals]


# --- the gamma function's derivatives ----------------------------------------------------


def digamma(x: float) -> float:
    """Return the derivative of the gamma function's logarithm."""
    shift = 0.0
    while x < 10:
        shift -= 1 / x
        x += 1
    y = 1 / (x * x)
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))))
    return shift + math.log(x) - 0.5 / x - series


def trigamma(x: float) -> float:
    """Return the derivative of `digamma`."""
    shift = 0.0
    while x < 10:
        shift += 1 / (x * x)
        x += 1
    y = 1 / (x * x)
    series = y * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y * (1 / 30 - y * 5 / 66))))
    return shift + 1 / x + y / 2 + series / x


def inverse_trigamma(value: float) -> float:
    """Return what `trigamma` makes `value` of, by halving."""
    low, high = 0.0, 1.0
    while trigamma(high) > value:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if trigamma(middle) > value else (low, middle)
    return high
