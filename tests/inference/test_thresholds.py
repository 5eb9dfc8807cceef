"""Thresholds: Wilson's bound against scipy, the choice against trying them one by one."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.errors import UsageError
from plait.inference.intervals import wilson_bound
from plait.inference.thresholds import choose_threshold, refuse_threshold


def one_by_one(sure, right, accuracy):
    """From the surest twentieth on, thresholds are tried until one fails; the last good one."""
    best, num_rows = None, len(sure)
    least = 20
    while wilson_bound(least - 1, least) < accuracy:
        least += 1
    for step in range(1, 21):
        count = math.ceil(num_rows * step / 20)
        if count < min(least, num_rows):
            continue
        value = sorted(sure, reverse=True)[count - 1]
        answered = [hit for s, hit in zip(sure, right, strict=True) if s >= value]
        if wilson_bound(sum(answered), len(answered)) < accuracy:
            break
        best = value, len(answered), sum(answered)
    return best


ROWS = st.lists(
    st.tuples(st.sampled_from([0.3, 0.5, 0.5000001, 0.7, 0.9, 1.0]), st.booleans()),
    min_size=1,
    max_size=90,
)


@given(ROWS, st.sampled_from([0.1, 0.3, 0.5, 0.6, 0.8, 0.9]))
def test_the_choice_is_that_of_trying_one_by_one(rows, accuracy):
    sure, right = [row[0] for row in rows], [row[1] for row in rows]
    expected = one_by_one(sure, right, accuracy)
    if expected is None:
        with pytest.raises(UsageError, match="no threshold reaches an accuracy of"):
            choose_threshold(sure, right, accuracy)
        return
    found = choose_threshold(sure, right, accuracy)
    value, num_answered, num_right = expected
    assert (found.value, found.num_answered, found.num_rows) == (value, num_answered, len(rows))
    assert found.accuracy == pytest.approx(num_right / num_answered)
    assert found.share == num_answered / len(rows)
    assert found.bound >= accuracy


@pytest.mark.parametrize(("num_rows", "accuracy"), [(100, 0.8), (200, 0.95), (1000, 0.9)])
def test_what_is_not_so_is_seldom_promised(num_rows, accuracy):
    """Where no threshold is accurate enough, though only just, one in twenty worlds has luck."""
    generator = np.random.default_rng(7)
    promised = 0
    for _ in range(1000):
        right = generator.uniform(size=num_rows) < accuracy - 0.001
        with suppress(UsageError):
            choose_threshold(generator.uniform(size=num_rows), right, accuracy)
            promised += 1
    assert promised <= 70


@pytest.mark.parametrize("accuracy", [0, 1, 1.5, -1, float("nan")])
def test_accuracies_that_are_none(accuracy):
    with pytest.raises(UsageError, match="the accuracy must be between 0 and 1"):
        choose_threshold([0.5], [True], accuracy)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_thresholds_that_are_none(value):
    with pytest.raises(UsageError, match="a threshold must be a probability"):
        refuse_threshold(value)
