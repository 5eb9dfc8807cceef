"""Intervals against scipy's, McNemar's test against the binomial test it is."""

from __future__ import annotations

import numpy as np
import pytest

from plait.inference.intervals import (
    bootstrap_means,
    mcnemar,
    newcombe,
    percentile_interval,
    share_interval,
    wilson,
)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


# --- Wilson ------------------------------------------------------------------------------


@pytest.mark.parametrize(("hits", "rows"), [(0, 1), (1, 1), (52, 52), (95, 100), (3, 7), (0, 40)])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.98])
def test_wilson_is_scipys(hits, rows, level):
    stats = pytest.importorskip("scipy.stats")
    theirs = stats.binomtest(hits, rows).proportion_ci(level, method="wilson")
    assert wilson(hits, rows, level) == pytest.approx((theirs.low, theirs.high), abs=1e-6)


# --- Newcombe ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((9, 10, 3, 10), 0.1705, 0.8090),
        ((5, 56, 0, 29), -0.0381, 0.1926),
        ((10, 10, 0, 20), 0.6791, 1.0),
    ],
)
def test_differences_of_shares_are_newcombes(counts, low, high):
    found = newcombe(*counts)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-4)


# --- McNemar -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fixed", "broken"), [(3, 3), (7, 19), (400, 460), (2000, 2001), (900, 20)]
)
def test_mcnemar_is_the_binomial_test(fixed, broken):
    stats = pytest.importorskip("scipy.stats")
    wanted = stats.binomtest(fixed, fixed + broken, 0.5).pvalue
    assert mcnemar(fixed, broken) == pytest.approx(wanted, rel=1e-8)


# --- the bootstrap -----------------------------------------------------------------------


def test_the_interval_of_a_mean_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    values = rng(1).exponential(size=80)
    ours = percentile_interval(bootstrap_means(values, rng(2), draws=20_000))
    theirs = stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=rng(3)
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=0.01)


def test_groups_are_drawn_whole():
    """Ten copies of each of four values tell no more than the four."""
    values = np.repeat([0.0, 0.0, 0.0, 1.0], 10)
    apart = percentile_interval(bootstrap_means(values, rng()))
    together = percentile_interval(bootstrap_means(values, rng(), groups=np.repeat(range(4), 10)))
    alone = percentile_interval(bootstrap_means([0, 0, 0, 1], rng()))
    assert apart.high - apart.low < 0.35
    assert (together.low, together.high) == (alone.low, alone.high) == (0.0, 0.75)


@pytest.mark.parametrize("count", [3, 20, 100])
def test_none_of_some_may_be_some_of_more(count):
    stats = pytest.importorskip("scipy.stats")
    for flag in (0, 1):
        ours = share_interval([flag] * count, rng())
        theirs = stats.binomtest(flag * count, count).proportion_ci()
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))
    pairs = share_interval([0] * 2 * count, rng(), groups=np.repeat(range(count), 2))
    assert pairs == share_interval([0] * count, rng())
