"""Student's distribution, sums of it and the gamma function's derivatives are scipy's."""

from __future__ import annotations

import math

import pytest
from scipy import special, stats

from plait.results.distributions import (
    _drawn_deviations,
    digamma,
    inverse_trigamma,
    student_quantile,
    student_tails,
    sum_quantile,
    sum_tails,
    trigamma,
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


@pytest.mark.parametrize(("freedom", "quantile"), [((6, 6), 2.435), ((12, 6), 2.301)])
def test_two_means_apart_have_behrens_and_fishers_quantiles(freedom, quantile):
    """Fisher and Yates' table VI, 5%, 45 degrees: both variances alike."""
    parts = tuple((0.5, own) for own in freedom)
    assert sum_quantile(0.95, parts) == pytest.approx(quantile, rel=0.005)
    assert sum_tails(quantile, parts) == pytest.approx(0.05, abs=0.001)


@pytest.mark.parametrize("x", [0.0, 1.0, 5.0, 40.0])
def test_a_sum_of_cauchys_is_a_cauchy(x):
    expected = 1 - 2 / math.pi * math.atan(x / (1 + 2 + 3))
    assert sum_tails(x, ((1.0, 1.0), (4.0, 1.0), (9.0, 1.0))) == pytest.approx(expected, abs=0.005)


def test_one_part_is_students_to_the_digit():
    assert sum_tails(0.1, ((0.0025, 3.0),)) == student_tails(2.0, 3.0)
    assert sum_quantile(0.95, ((0.0025, 3.0),)) == 0.05 * student_quantile(0.95, 3.0)


def test_the_same_draws_every_time():
    parts = ((0.3, 2.5), (0.7, 1.5))
    first = sum_tails(2.0, parts)
    _drawn_deviations.cache_clear()
    assert sum_tails(2.0, parts) == first
    assert sum_tails(sum_quantile(0.9, parts), parts) == pytest.approx(0.1, abs=1e-4)


@pytest.mark.parametrize("x", [0.05, 0.5, 1.0, 2.3, 9.99, 10.0, 1234.5])
def test_the_gamma_functions_derivatives_are_scipys(x):
    assert digamma(x) == pytest.approx(special.digamma(x), rel=1e-12, abs=1e-12)
    assert trigamma(x) == pytest.approx(special.polygamma(1, x), rel=1e-12)
    assert inverse_trigamma(trigamma(x)) == pytest.approx(x, rel=1e-9)
