"""Two runs compared: changed rows, paired bootstrap, McNemar's test."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap

from plait.analysis.comparison import Difference, compare_answers
from plait.inference.intervals import Interval
from plait.tasks import TaskSpec

YES_NO = TaskSpec(kind="binary", text=("text",))
NEAR = TaskSpec(kind="score", range=(0.0, 5.0), text=("a", "b"))


def chances(*of_yes):
    return np.array([[1 - p, p] for p in of_yes])


def test_fixed_and_broken_rows_worst_first():
    ours, theirs = chances(0.9, 0.8, 0.2, 0.9, 0.4), chances(0.4, 0.1, 0.3, 0.2, 0.1)
    found = compare_answers(YES_NO, [1, 1, 1, 0, 0], ours, theirs, draws=20)
    assert found.fixed.tolist() == [1, 0]  # the other was 90% and 60% confident
    assert found.broken.tolist() == [3]
    assert found.p == 1.0
    assert found.answers == ["no", "no", "no", "no", "no"]
    accuracy = found.metrics["accuracy"]
    assert (accuracy.run, accuracy.against) == (0.6, 0.4)
    assert found.to_json()["fixed"] == 2


def test_rows_that_changed_equally_keep_their_order():
    ours, theirs = chances(*[0.9, 0.8] * 40), chances(*[0.1, 0.2] * 40)
    found = compare_answers(YES_NO, [1] * 80, ours, theirs, draws=1)
    assert found.fixed.tolist() == [*range(0, 80, 2), *range(1, 80, 2)]


def test_numbers_by_distance():
    ours, theirs = np.array([1.0, 2.5, 3.0, 2.0]), np.array([1.5, 4.0, 3.0, 4.5])
    found = compare_answers(NEAR, [1.0, 2.0, 3.0, 4.0], ours, theirs, draws=20)
    assert found.fixed.tolist() == [1, 0]
    assert found.broken.tolist() == [3]
    assert found.p is None
    assert set(found.metrics) == {"pearson", "spearman", "mse", "mae"}


def test_the_interval_is_that_of_scipy():
    generator = np.random.default_rng(3)
    labels = generator.integers(2, size=300)
    right = np.where(generator.random(300) < 0.8, labels, 1 - labels)
    worse = np.where(generator.random(300) < 0.7, labels, 1 - labels)
    answers = [np.eye(2)[classes] * 0.8 + 0.1 for classes in (right, worse)]
    found = compare_answers(YES_NO, labels, *answers, draws=2000).metrics["accuracy"]
    gains = (right == labels).astype(float) - (worse == labels)
    assert found.value == pytest.approx(gains.mean())
    expected = bootstrap(
        (gains,), np.mean, method="percentile", n_resamples=5000, rng=generator
    ).confidence_interval
    assert (found.interval.low, found.interval.high) == pytest.approx(tuple(expected), abs=0.01)


def test_the_bootstrap_is_paired():
    """Two runs with the same errors differ clearly, though each metric is uncertain."""
    draw = np.random.default_rng(1)
    labels, noise = draw.uniform(0, 5, 200), draw.normal(0, 1, 200)
    found = compare_answers(NEAR, labels, labels + noise, labels + 1.1 * noise, draws=200)
    mae = found.metrics["mae"].interval
    assert mae.high < 0
    assert mae.high - mae.low < 0.05


@pytest.mark.parametrize(
    ("fixed", "broken", "is_clear"), [(5, 0, False), (6, 0, True), (9, 2, False)]
)
def test_a_few_changed_rows_are_not_a_clear_difference(fixed, broken, is_clear):
    """p is 1/16, 1/32 and .065; the bootstrap intervals alone would exclude 0 in all three."""
    labels = np.zeros(100, dtype=int)
    mine, theirs = labels.copy(), labels.copy()
    theirs[:fixed] = mine[50 : 50 + broken] = 1
    found = compare_answers(YES_NO, labels, np.eye(2)[mine], np.eye(2)[theirs])
    accuracy = found.metrics["accuracy"]
    assert found.p == pytest.approx(binomtest(broken, fixed + broken).pvalue)
    assert accuracy.value == pytest.approx((fixed - broken) / 100)
    assert accuracy.is_clear == is_clear
    assert is_clear or accuracy.interval.low == 0


def test_equal_answers_do_not_differ():
    answers = chances(0.9, 0.2, 0.6)
    found = compare_answers(YES_NO, [1, 1, 0], answers, answers, draws=10)
    assert (len(found.fixed), len(found.broken), found.p) == (0, 0, 1.0)
    assert all(metric.interval == Interval(0, 0) for metric in found.metrics.values())
    assert not Difference(0.1, 0.0).is_clear  # without an interval


def test_an_undefined_metric_is_null():
    """Equal predictions have no correlation."""
    answers = np.array([1.0, 2.0, 3.0]), np.full(3, 2.0)
    told = compare_answers(NEAR, [1.0, 2.0, 4.0], *answers, draws=20).to_json()
    pearson = told["metrics"]["pearson"]
    assert pearson["run"] == pytest.approx(0.982, abs=1e-3)
    assert pearson["against"] is pearson["difference"] is None
    assert pearson["interval"] == [None, None]
    json.dumps(told, allow_nan=False)


def test_one_row_has_no_interval():
    found = compare_answers(YES_NO, [1], chances(0.9), chances(0.1)).metrics["accuracy"]
    assert found.value == 1
    assert math.isnan(found.interval.low)
