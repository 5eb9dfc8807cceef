"""Intervals against scipy's, McNemar's test against the binomial test it is."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.inference.intervals import (
    Interval,
    bootstrap_means,
    bootstrap_metrics,
    mcnemar,
    newcombe,
    percentile_interval,
    share_interval,
    wilson,
    wilson_bound,
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


def test_wilson_of_many_shares_and_of_none():
    # 8 of 10, as in Brown, Cai and DasGupta's tables.
    low, high = wilson([8, 0, 5], [10, 5, 5])
    assert (low[0], high[0]) == pytest.approx((0.490, 0.943), abs=1e-3)
    assert (low[1], high[2]) == pytest.approx((0, 1), abs=1e-12)
    assert [len(end) for end in wilson([], [])] == [0, 0]


def test_a_bound_by_hand():
    # All right: n / (n + z squared), z = 1.644854
    assert float(wilson_bound(52, 52)) == pytest.approx(52 / (52 + 2.705543), abs=1e-6)
    assert float(wilson_bound(52, 52)) >= 0.95 > float(wilson_bound(51, 51))


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


def test_a_small_share_of_all_rows_says_little():
    # 20 of 20 against 900 of 1,000: one slice in eight (0.9^20) of such rows is all right.
    assert not newcombe(20, 20, 900, 1000).excludes(0)
    assert newcombe(200, 200, 900, 1000).excludes(0)


# --- McNemar -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fixed", "broken", "p"),
    [
        (0, 0, 1.0),
        (1, 0, 1.0),
        (5, 0, 0.0625),  # 2 / 2^5
        (10, 2, 0.03857421875),  # 2 (1 + 12 + 66) / 2^12
        (121, 59, 4.434e-06),  # statsmodels' mcnemar(exact=True) on its own example
    ],
)
def test_mcnemar_by_hand(fixed, broken, p):
    assert mcnemar(fixed, broken) == pytest.approx(p, rel=1e-3)
    assert mcnemar(broken, fixed) == mcnemar(fixed, broken)


@pytest.mark.parametrize(
    ("fixed", "broken"), [(3, 3), (7, 19), (400, 460), (2000, 2001), (900, 20)]
)
def test_mcnemar_is_the_binomial_test(fixed, broken):
    stats = pytest.importorskip("scipy.stats")
    wanted = stats.binomtest(fixed, fixed + broken, 0.5).pvalue
    assert mcnemar(fixed, broken) == pytest.approx(wanted, rel=1e-8)


@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_is_a_probability(fixed, broken):
    assert 0 < mcnemar(fixed, broken) <= 1


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


def test_draws_in_chunks_are_as_many(monkeypatch):
    monkeypatch.setattr("plait.inference.intervals._CHUNK", 7)
    means = bootstrap_means([0.0, 1.0, 1.0], rng(), draws=101)
    assert means.shape == (101,)
    assert set(np.round(means * 3)) == {0, 1, 2, 3}


def test_figures_by_name_with_progress():
    values, heard = np.array([1.0, 2.0, 3.0]), []
    found = bootstrap_metrics(
        lambda rows: {"mean": float(values[rows].mean()), "none": math.nan},
        3,
        rng(),
        draws=50,
        progress=lambda done, total: heard.append((done, total)),
    )
    assert 1 <= found["mean"].min() < found["mean"].max() <= 3
    assert heard[-1] == (50, 50)
    assert percentile_interval(found["none"]).to_json() == [None, None]


def test_the_same_seed_gives_the_same_interval():
    values = rng(4).normal(size=30)
    assert percentile_interval(bootstrap_means(values, rng(5))) == percentile_interval(
        bootstrap_means(values, rng(5))
    )


@pytest.mark.parametrize("count", [3, 20, 100])
def test_none_of_some_may_be_some_of_more(count):
    stats = pytest.importorskip("scipy.stats")
    for flag in (0, 1):
        ours = share_interval([flag] * count, rng())
        theirs = stats.binomtest(flag * count, count).proportion_ci()
        assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))
    pairs = share_interval([0] * 2 * count, rng(), groups=np.repeat(range(count), 2))
    assert pairs == share_interval([0] * count, rng())


def test_a_share_that_varies_is_drawn():
    interval = share_interval([True, False] * 50, rng())
    assert 0.38 < interval.low < 0.45 < 0.55 < interval.high < 0.62


def test_no_rows_have_no_interval():
    interval = percentile_interval(bootstrap_means([], rng()))
    assert math.isnan(interval.low)
    assert not interval.excludes(0)


def test_excluding():
    assert Interval(0.1, 0.2).excludes(0)
    assert Interval(-0.2, -0.1).excludes(0)
    assert not Interval(-0.1, 0.2).excludes(0)
