"""Student's tests, Holm's steps and sampling errors are scipy's, moderated variances limma's."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from plait.results.significance import (
    Difference,
    Expected,
    Spread,
    accuracy_variance,
    compare_moderated,
    compare_paired,
    correlation_variance,
    expect_spread,
    holm,
    moderate,
    own_spread,
)


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
    assert compare_paired([0.25, 0.25, 0.25]).interval == (0.25, 0.25)
    assert compare_paired([0.0, 0.0, 0.0]).p_value() == 1


def test_a_side_that_does_not_vary_adds_nothing():
    own, none = Spread(0.0001, 2), Spread(0.0, 1)
    alone, both = (Difference(0.01, parts, 3, False) for parts in ((own,), (none, own)))
    assert both.interval == pytest.approx(alone.interval)
    assert both.p_value() == pytest.approx(alone.p_value())


# --- by what all rows tell of the spread -------------------------------------------------

VARIANCES = [0.0004, 0.000025, 0.01, 0.00009, 0.000004, 0.0001, 0.00003, 0.0009]
FREEDOM = [1, 2, 1, 1, 2, 1, 3, 2]


def test_variances_are_moderated_as_in_limma():
    """The figures are those of squeezeVar in inmoose 0.9.1, the Python port of limma."""
    rows = [Spread(v, f) for v, f in zip(VARIANCES, FREEDOM, strict=True)]
    expected = expect_spread(rows)
    assert expected is not None
    assert expected.variance == pytest.approx(0.0001115469049821022)
    assert expected.freedom == pytest.approx(1.158039454615821)
    assert [moderate(row, expected).variance for row in rows] == pytest.approx(
        [
            0.0002452113263627803,
            5.673637697834062e-05,
            0.00469369347967402,
            0.00010156242349543817,
            4.343698645343366e-05,
            0.00010619625907180406,
            5.271131248315849e-05,
            0.000610877648849464,
        ]
    )


@pytest.mark.parametrize("spread", [1.0, 1.5, 3.0])
def test_rows_a_little_farther_apart_than_chance_are_not_all_alike(spread):
    """Smyth's equation by scipy: its variances vary as much as chance does not explain."""
    variances, halves = [math.exp(spread * i) for i in (-1, -0.5, 0, 0.5, 1)], 4.0
    apart = np.var(np.log(variances), ddof=1) - special.polygamma(1, halves)
    assert apart > 0
    expected = expect_spread([Spread(v, 2 * halves) for v in variances])
    assert expected is not None
    assert special.polygamma(1, expected.freedom / 2) == pytest.approx(apart)


def test_rows_no_farther_apart_than_chance_share_one_variance():
    """As limma has it: no bound on the freedom, and the mean of the variances."""
    expected = expect_spread([Spread(v, 2) for v in (1.0, 1.2, 0.9, 1.1)])
    assert expected == Expected(pytest.approx(1.05), math.inf, 8)
    assert moderate(Spread(1.2, 2), expected) == Spread(pytest.approx(1.05), 8)
    assert moderate(None, expected) == Spread(pytest.approx(1.05), 8)


def test_few_rows_tell_no_more_than_their_own_seeds():
    expected = expect_spread([Spread(0.01, 1), Spread(0.0000001, 1)])
    assert expected is not None
    assert expected.freedom < 2
    assert moderate(Spread(0.01, 1), expected).freedom == min(1 + expected.freedom, 2)
    assert expect_spread([Spread(0.01, 1)]) == Expected(0.01, math.inf, 1)
    assert expect_spread([Spread(0.0, 1), Spread(0.0, 2)]) == Expected(0.0, math.inf, 3)
    assert expect_spread([]) is None


def test_a_row_of_one_seed_has_what_is_expected():
    assert own_spread([0.5]) is None
    assert moderate(None, Expected(0.02, 1.5, 20)) == Spread(0.02, 1.5)
    assert own_spread([0.5, 0.5], 1e-8) == Spread(1e-8, 1)
    assert own_spread([0.5, 0.52, 0.54]) == Spread(pytest.approx(0.0004), 2)


def test_where_all_rows_vary_alike_it_is_the_two_sample_test():
    ours, theirs = [0.52, 0.55, 0.53], [0.51, 0.50, 0.48]
    spreads = [own_spread(row) for row in (ours, theirs)]
    expected = expect_spread([spread for spread in spreads if spread])
    assert expected is not None
    found = compare_moderated([(ours, spreads[0])], [(theirs, spreads[1])], expected)
    scipys = stats.ttest_ind(ours, theirs)
    assert found.p_value() == pytest.approx(scipys.pvalue)
    assert found.interval == pytest.approx(tuple(scipys.confidence_interval(0.95)))
    assert (found.num_seeds, found.is_paired) == (3, False)


def test_a_mean_of_rows_is_surer_than_a_row():
    """The variance of a mean of 2 rows of 1 seed is a half, of 1 row of 4 seeds a quarter."""
    better: list[tuple[list[float], Spread | None]] = [([0.5], None), ([0.6], None)]
    found = compare_moderated(better, [([0.5] * 4, None)], Expected(0.0004, 8.0, 100))
    assert found.error == pytest.approx(0.02 * math.sqrt(0.5 + 0.25))
    assert [part.variance for part in found.parts] == pytest.approx([0.0001] * 3)
    assert found.value == pytest.approx(0.05)


@pytest.mark.parametrize("freedom", [1.4, 4.0, 1e6])
def test_intervals_cover_also_where_rows_vary_unlike(freedom):
    """With 40 rows of two seeds each; by a pooled spread, the wild rows' intervals would not."""
    generator = np.random.default_rng(0)
    inside, num = 0, 600
    for _ in range(num):
        deviations = np.sqrt(freedom / generator.chisquare(freedom, size=40))
        rows = (generator.normal(size=(40, 2)) * deviations[:, None]).tolist()
        spreads = [own_spread(row) for row in rows]
        expected = expect_spread([spread for spread in spreads if spread])
        assert expected is not None
        found = compare_moderated([(rows[0], spreads[0])], [(rows[1], spreads[1])], expected)
        inside += found.p_value() > 0.05
    assert 0.92 < inside / num < 0.98


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
