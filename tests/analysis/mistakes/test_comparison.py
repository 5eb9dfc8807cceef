"""Two runs beside each other: what is fixed, what is broken, how sure that is."""

from __future__ import annotations

import json

import numpy as np
import pytest

from plait.analysis.mistakes import compare
from plait.tasks import TaskSpec

YES_NO = TaskSpec(kind="binary", text=("text",))
NEAR = TaskSpec(kind="score", range=(0.0, 5.0), text=("a", "b"))


def chances(*of_yes):
    return np.array([[1 - p, p] for p in of_yes])


def test_rows_fixed_and_broken_worst_first():
    labels = [1, 1, 1, 0, 0]
    ours = chances(0.9, 0.8, 0.2, 0.9, 0.4)
    theirs = chances(0.4, 0.1, 0.3, 0.2, 0.1)
    found = compare(YES_NO, labels, ours, theirs, np.random.default_rng(0), draws=20)
    assert found.fixed.tolist() == [1, 0]  # the other was 90% and 60% sure
    assert found.broken.tolist() == [3]
    assert found.p == 1.0
    assert found.answers == ["no", "no", "no", "no", "no"]
    assert found.metrics["accuracy"].run == 0.6
    assert found.metrics["accuracy"].against == 0.4


def test_scores_by_how_much_nearer():
    found = compare(
        NEAR,
        [1.0, 2.0, 3.0, 4.0],
        np.array([1.0, 2.5, 3.0, 2.0]),
        np.array([1.5, 4.0, 3.0, 4.5]),
        np.random.default_rng(0),
        draws=20,
    )
    assert found.fixed.tolist() == [1, 0]
    assert found.broken.tolist() == [3]
    assert found.p is None
    assert set(found.metrics) == {"pearson", "spearman", "mse", "mae"}


def test_intervals_are_paired():
    """Two runs that fail on the same rows differ surely, though each figure is unsure."""
    draw = np.random.default_rng(1)
    labels = draw.uniform(0, 5, 200)
    noise = draw.normal(0, 1, 200)
    found = compare(NEAR, labels, labels + noise, labels + 1.1 * noise, draw, draws=200)
    mae = found.metrics["mae"]
    alone = NEAR.kind.score(labels, labels + noise).metrics["mae"]
    assert mae.run == pytest.approx(alone)
    assert mae.interval.high < 0
    assert mae.interval.high - mae.interval.low < 0.05


def test_the_same_answers_do_not_differ():
    answers = chances(0.9, 0.2, 0.6)
    found = compare(YES_NO, [1, 1, 0], answers, answers, np.random.default_rng(0), draws=10)
    assert (len(found.fixed), len(found.broken), found.p) == (0, 0, 1.0)
    assert all(m.interval.to_json() == [0.0, 0.0] for m in found.metrics.values())


def test_rows_that_gained_the_same_stay_in_order():
    """So that the two lists are the same wherever they are made."""
    ours, theirs = chances(*[0.9, 0.8] * 40), chances(*[0.1, 0.2] * 40)
    found = compare(YES_NO, [1] * 80, ours, theirs, np.random.default_rng(0), draws=1)
    assert found.fixed.tolist() == [*range(0, 80, 2), *range(1, 80, 2)]


def test_what_json_says():
    labels, ours, theirs = [1, 1, 1, 0], chances(0.9, 0.8, 0.7, 0.9), chances(0.4, 0.1, 0.9, 0.2)
    told = compare(YES_NO, labels, ours, theirs, np.random.default_rng(0), draws=20).to_json()
    assert (told["fixed"], told["broken"], told["p"]) == (2, 1, 1.0)
    accuracy = told["metrics"]["accuracy"]
    assert (accuracy["run"], accuracy["against"], accuracy["difference"]) == (0.75, 0.5, 0.25)
    low, high = accuracy["interval"]
    assert low <= 0.25 <= high


def test_json_has_no_nan():
    """Scores that are all the same correlate with nothing."""
    answers = np.array([1.0, 2.0, 3.0]), np.full(3, 2.0)
    found = compare(NEAR, [1.0, 2.0, 4.0], *answers, np.random.default_rng(0), draws=20)
    pearson = found.to_json()["metrics"]["pearson"]
    assert pearson["run"] == pytest.approx(0.982, abs=1e-3)
    assert pearson["against"] is pearson["difference"] is None
    json.dumps(found.to_json(), allow_nan=False)
