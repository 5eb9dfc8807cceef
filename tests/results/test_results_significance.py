"""Student's test, Holm's steps and sampling errors are scipy's."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from plait.results.significance import (
    Spread,
    accuracy_variance,
    compare_paired,
    compare_pooled,
    correlation_variance,
    holm,
    pool_spread,
    student_quantile,
    student_tails,
)

FREEDOMS = [1, 2, 3, 4.5, 10, 116, 5000.5, 99999, 9.9e6, 1e9]


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("t", [0.0, 0.001, 0.5, 1.0, 2.5, -2.5, 12.0, 300.0])
def test_tails_are_scipys(t, freedom):
    expected = 2 * stats.t.sf(abs(t), freedom)
    assert student_tails(t, freedom) == pytest.approx(expected, rel=2e-5, abs=1e-300)


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_quantiles_are_scipys(level, freedom):
    assert student_quantile(level, freedom) == pytest.approx(
        stats.t.ppf((1 + level) / 2, freedom), rel=2e-5
    )


def test_without_a_limit_it_is_the_normal_distribution():
    assert student_quantile(0.95, math.inf) == pytest.approx(1.959964, abs=1e-6)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_the_paired_test_is_scipys(count):
    draw = random.Random(count)
    ours = [draw.gauss(0.5, 0.01) for _ in range(count)]
    theirs = [draw.gauss(0.49, 0.01) for _ in range(count)]
    found = compare_paired([a - b for a, b in zip(ours, theirs, strict=True)])
    expected = stats.ttest_rel(ours, theirs)
    assert found.p_value() == pytest.approx(expected.pvalue)
    assert found.interval == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert (found.num_seeds, found.is_paired) == (count, True)


def test_a_p_value_can_be_of_another_null():
    differences = [0.001, 0.002, -0.001, 0.0015]
    expected = stats.ttest_1samp(differences, 0.005).pvalue
    assert compare_paired(differences).p_value(0.005) == pytest.approx(expected)


def test_equal_differences_leave_no_doubt():
    assert compare_paired([0.25, 0.25, 0.25]).p_value() == 0
    assert compare_paired([0.0, 0.0, 0.0]).p_value() == 1


def test_the_pooled_spread_is_that_of_an_analysis_of_variance():
    rows = [[0.51, 0.53, 0.50], [0.60, 0.62], [0.40], [0.70, 0.71, 0.75, 0.72]]
    within = sum(((np.array(row) - np.mean(row)) ** 2).sum() for row in rows)
    spread = pool_spread(rows)
    assert spread is not None
    assert spread.deviation == pytest.approx(math.sqrt(within / 6))
    assert pool_spread([[0.5], [0.6]]) is None


def test_rows_that_vary_alike_keep_their_degrees_of_freedom():
    """The others lose some: by hand, (3 + 1)^2 / (3^2 + 1^2), and all but that of the wildest."""
    alike = pool_spread([[0.5, 0.52, 0.54], [0.8, 0.82, 0.84], [0.1]])
    assert alike is not None
    assert alike.freedom == pytest.approx(4)
    uneven = pool_spread([[0.0, math.sqrt(6)], [0.0, math.sqrt(2)]])  # variances of 3 and 1
    assert uneven is not None
    assert uneven.freedom == pytest.approx(1.6)
    one_wild = pool_spread([[0.3, 0.7], *([0.5, 0.5001] for _ in range(11))])
    assert one_wild is not None
    assert one_wild.freedom == pytest.approx(1, abs=0.01)
    still = pool_spread([[0.5, 0.5], [0.6, 0.6]])
    assert still == Spread(0.0, 2)


@pytest.mark.parametrize("others", [1.0, 0.3, 0.05])
def test_a_pooled_interval_covers_also_where_rows_vary_unlike(others):
    """Two wild rows of twelve: by the number of seeds alone, 85% of the intervals would."""
    generator = np.random.default_rng(0)
    deviations = np.array([1.0] * 2 + [others] * 10)
    rows = generator.normal(size=(2000, 12, 2)) * deviations[:, None]
    truth = generator.normal(size=2000) * math.sqrt(2 * (deviations**2).mean())
    inside = 0
    for drawn, difference in zip(rows, truth, strict=True):
        spread = pool_spread(drawn.tolist())
        assert spread is not None
        low, high = compare_pooled([[difference]], [[0.0]], spread, 0.0).interval
        inside += low <= 0 <= high
    assert inside / 2000 > 0.945


def test_without_sampling_error_the_pooled_test_is_the_two_sample_one():
    """Of sides that vary alike; else it is the more careful one."""
    ours, theirs = [0.52, 0.55, 0.53], [0.51, 0.50, 0.48]
    spread = pool_spread([ours, theirs])
    assert spread is not None
    found = compare_pooled([ours], [theirs], spread, 0.0)
    expected = stats.ttest_ind(ours, theirs)
    assert found.p_value() == pytest.approx(expected.pvalue)
    assert found.interval == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert (found.num_seeds, found.is_paired) == (3, False)


def test_the_pooled_test_adds_the_dev_sets_error():
    """By hand: two single runs, seeds' variance .0001 each with 10 degrees, sampling .0002."""
    found = compare_pooled([[0.55]], [[0.52]], Spread(0.01, 10), 0.0002)
    assert found.value == pytest.approx(0.03)
    assert found.error == pytest.approx(0.02)
    # Welch and Satterthwaite: (.0004)^2 / ((.0002)^2 / 10) = 40.
    assert found.freedom == pytest.approx(40)


def test_a_mean_of_rows_is_surer_than_a_row():
    """The variance of a mean of 2 rows of 1 seed is a half, of 1 row of 4 seeds a quarter."""
    found = compare_pooled([[0.5], [0.6]], [[0.5, 0.5, 0.5, 0.5]], Spread(0.02, 8), 0.0)
    assert found.error == pytest.approx(0.02 * math.sqrt(0.5 + 0.25))


# --- the dev set's error -----------------------------------------------------------------


def test_the_error_of_an_accuracy_is_binomial():
    expected = stats.binom(1101, 0.52).std() / 1101
    assert math.sqrt(accuracy_variance(0.52, 1101)) == pytest.approx(expected)


def test_the_error_of_a_correlation_is_fishers():
    """scipy's interval is made on z and carried back; near its middle ours is the same."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=863)
    y = x + generator.normal(size=863)
    found = stats.pearsonr(x, y)
    low, high = found.confidence_interval(0.1)
    reach = stats.norm.ppf(0.55) * math.sqrt(correlation_variance(found.statistic, 863))
    assert high - low == pytest.approx(2 * reach, rel=1e-3)


# --- many tests --------------------------------------------------------------------------


def test_holm_by_hand():
    """.01 * 4, .013 * 3 (below the one before), .03 * 2, .04 * 1 (below the one before)."""
    found = holm({"d": 0.04, "a": 0.01, "c": 0.03, "b": 0.013})
    assert found == pytest.approx({"a": 0.04, "b": 0.04, "c": 0.06, "d": 0.06})
    assert holm({}) == {}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_corrects_upwards_and_keeps_the_order(values):
    given_values = {str(i): value for i, value in enumerate(values)}
    found = holm(given_values)
    assert all(given_values[name] <= found[name] <= 1 for name in found)
    order = sorted(given_values, key=lambda name: given_values[name])
    assert [found[name] for name in order] == sorted(found.values())
    least = min(values)
    assert min(found.values()) == min(1.0, least * len(values))
