"""The tests of the claims."""

from __future__ import annotations

import math
from statistics import fmean, variance

import numpy as np
import pytest
from scipy import stats

from reproduction.claims import compare, judge_all
from reproduction.published import Claim
from reproduction.records import Record, Records
from reproduction.statistics import (
    Difference,
    Expected,
    Spread,
    compare_moderated,
    expect_spread,
    moderate,
    own_spread,
)


def test_with_equal_variances_it_is_students_test():
    one, two = [0.50, 0.52, 0.51], [0.55, 0.53, 0.56]
    pooled = (variance(one) + variance(two)) / 2
    found = compare_moderated([(one, None)], [(two, None)], Expected(pooled, math.inf, 4))
    expected = stats.ttest_ind(one, two)
    assert found.p_value() == pytest.approx(expected.pvalue)
    assert found.interval == pytest.approx(tuple(expected.confidence_interval()))


def test_a_sum_of_ts_agrees_with_simulation():
    found = Difference(0.0, (Spread(1.0, 4.0), Spread(2.0, 9.0)), 3)
    generator = np.random.default_rng(1)
    draws = generator.standard_t(4, 200_000) + math.sqrt(2) * generator.standard_t(9, 200_000)
    assert found.interval[1] == pytest.approx(np.quantile(abs(draws), 0.95), rel=0.01)
    assert found.p_value(3.0) == pytest.approx((abs(draws) > 3).mean(), abs=0.003)


def test_the_distribution_of_variances_is_recovered():
    generator = np.random.default_rng(2)
    freedom, scale = 5.0, 0.01
    true = scale * freedom / generator.chisquare(freedom, 3000)
    rows = [generator.normal(0, math.sqrt(v), 4).tolist() for v in true]
    found = expect_spread([spread for row in rows if (spread := own_spread(row))])
    assert found is not None
    assert found.freedom == pytest.approx(freedom, rel=0.2)
    assert found.variance == pytest.approx(scale, rel=0.1)


def test_a_row_is_moderated_by_its_degrees_of_freedom():
    expected = Expected(0.04, 2.0, 100.0)
    assert moderate(Spread(0.01, 2.0), expected) == Spread(0.025, 4.0)
    assert moderate(None, expected) == Spread(0.04, 2.0)
    assert own_spread([0.5]) is None
    assert own_spread([0.5, 0.5], rounding=1e-4) == Spread(1e-4, 1)
    assert expect_spread([]) is None


# --- claims ------------------------------------------------------------------------------


def record(recipe: str, seed: int, score: float, baseline: float = 0.2) -> Record:
    dev = {
        "tasks": {"sst": {"kind": "classes", "num_examples": 1000, "metrics": {}}},
        "primary": {"sst": score},
        "summary": {"sum": score, "mean": score, "overall": score},
    }
    values = {"recipe": recipe, "profile": "small", "seed": seed, "dev": dev}
    return Record.model_validate(values | {"baseline": {"primary": {"sst": baseline}}})


ROWS = {
    "low": [0.50, 0.51, 0.50],
    "same": [0.505, 0.50, 0.51],
    "high": [0.60, 0.61, 0.60],
    "highest": [0.70, 0.69, 0.71],
    "lost": [0.2, 0.2, 0.2],
}


@pytest.fixture
def records() -> Records:
    return Records(record(n, seed, v) for n, vs in ROWS.items() for seed, v in enumerate(vs))


@pytest.mark.parametrize(
    ("better", "worse", "kind", "verdict"),
    [
        ("high", ["low"], "gain", "holds"),
        ("low", ["high"], "gain", "does not hold"),
        ("low", ["same"], "gain", "not significant"),
        ("low", ["high"], "no gain", "holds"),
        ("high", ["low"], "no gain", "does not hold"),
        ("highest", ["high", "low"], "best", "holds"),
        ("high", ["highest", "low"], "best", "does not hold"),
        ("high", ["lost"], "gain", "not tested"),
        ("high", ["absent"], "gain", "not tested"),
    ],
)
def test_verdicts(records, better, worse, kind, verdict):
    text = {"system": "A", "where": "", "says": ""}
    claim = Claim(**text, better=(better,), worse=tuple(worse), score="sst", kind=kind)
    (found,) = judge_all([claim], records)
    assert found.verdict == verdict
    assert found.corrected == found.p_value


def test_the_difference_is_that_of_the_means(records):
    found = compare([("high", None), ("highest", None)], [("low", None)], "sst", records)
    assert isinstance(found, Difference)
    means = {name: fmean(values) for name, values in ROWS.items()}
    assert found.value == pytest.approx((means["high"] + means["highest"]) / 2 - means["low"])
    assert found.num_seeds == 3
