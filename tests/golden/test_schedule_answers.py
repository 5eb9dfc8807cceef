"""Schedules against turns worked out by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from plait.errors import RecipeError
from plait.schedules import SCHEDULES, Schedule, Size

SIZES = {"mood": Size(20, 5), "same": Size(8, 2), "near": Size(10, 3)}


def build(name: str, **settings: object) -> Schedule:
    return SCHEDULES.build({"name": name, **settings}, "train.schedule")


def spell(schedule: Schedule, sizes: dict[str, Size] = SIZES, seed: int = 0) -> str:
    """First letters of the tasks, turns of several in one word."""
    made = schedule.epoch(sizes, 0, 1, np.random.default_rng(seed))
    return " ".join("".join(task[0] for task in turn) for turn in made)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "m m m m m s s n n n"),
        ({"order": ["near", "mood", "same"]}, "n n n m m m m m s s"),
        ({"length": "truncated"}, "m m s s n n"),
        ({"length": "truncated", "order": ["same", "near", "mood"]}, "s s n n m m"),
    ],
)
def test_sequential(settings, expected):
    assert spell(build("sequential", **settings)) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "m s n m s n m s n m s n m s n"),
        ({"order": ["near", "mood", "same"]}, "n m s n m s n m s n m s n m s"),
        ({"length": "truncated"}, "m s n m s n"),
        ({"length": "drop-out"}, "m s n m s n m n m m"),
        ({"length": "drop-out", "order": ["same", "near", "mood"]}, "s n m s n m n m m m"),
        ({"together": True}, "msn msn msn msn msn"),
        ({"together": True, "length": "truncated"}, "msn msn"),
        ({"together": True, "length": "drop-out"}, "msn msn mn m m"),
        ({"together": True, "order": ["near", "mood", "same"]}, "nms nms nms nms nms"),
    ],
)
def test_round_robin(settings, expected):
    assert spell(build("round-robin", **settings)) == expected


def test_a_single_batch_each():
    sizes = {"mood": Size(1, 1), "same": Size(1, 1)}
    assert spell(build("sequential"), sizes) == "m s"
    assert spell(build("round-robin"), sizes) == "m s"
    assert len(spell(build("fixed"), sizes).split()) == 2


def test_sequential_and_round_robin_begin_anew_and_fixed_goes_on():
    assert not build("sequential").keeps_place("mood")
    assert not build("round-robin").keeps_place("mood")
    assert build("fixed").keeps_place("mood")


def test_a_fixed_epoch_is_as_long_as_all_batches_unless_set():
    assert len(spell(build("fixed")).split()) == 10
    assert len(spell(build("fixed", steps=4)).split()) == 4


@pytest.mark.parametrize(
    ("probabilities", "shares"),
    [
        (None, {"mood": 1 / 3, "same": 1 / 3, "near": 1 / 3}),
        ({}, {"mood": 1 / 3, "same": 1 / 3, "near": 1 / 3}),
        ({"mood": 6.0, "same": 3.0, "near": 1.0}, {"mood": 0.6, "same": 0.3, "near": 0.1}),
        ({"mood": 1, "near": 3}, {"mood": 0.25, "same": 0.0, "near": 0.75}),
    ],
)
def test_fixed_draws_by_its_shares(probabilities, shares):
    num = 20_000
    schedule = build("fixed", probabilities=probabilities, steps=num)
    drawn = Counter(
        task for turn in schedule.epoch(SIZES, 0, 1, np.random.default_rng(7)) for task in turn
    )
    assert sum(drawn.values()) == num
    for task, share in shares.items():
        assert share or drawn[task] == 0
    # Chi-squared with 2 degrees of freedom or fewer: beyond 13.8 once in a thousand seeds.
    expected = {task: num * share for task, share in shares.items() if share}
    assert sum((drawn[t] - e) ** 2 / e for t, e in expected.items()) < 13.8


def test_fixed_draws_differ_between_seeds():
    assert spell(build("fixed", steps=40), seed=0) != spell(build("fixed", steps=40), seed=1)


@pytest.mark.parametrize("name", ["sequential", "round-robin"])
def test_a_misspelt_order_gets_a_suggestion(name):
    schedule = build(name, order=["mood", "smae", "near"])
    with pytest.raises(ValueError, match=r"^order names 'smae'; did you mean 'same'\?$"):
        spell(schedule)


@pytest.mark.parametrize("name", ["sequential", "round-robin"])
@pytest.mark.parametrize("order", [["mood", "same"], ["mood", "same", "near", "near"], []])
def test_an_order_names_each_task_once(name, order):
    with pytest.raises(ValueError, match=r"^order must name each task once: mood, same, near$"):
        spell(build(name, order=order))


def test_misspelt_probabilities_get_a_suggestion():
    schedule = build("fixed", probabilities={"mod": 1.0, "same": 1.0})
    with pytest.raises(ValueError, match=r"^probabilities names 'mod'; did you mean 'mood'\?$"):
        spell(schedule)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"probabilities": {"mood": -1.0, "same": 2.0}}, "must not be negative, nor all 0"),
        ({"probabilities": {"mood": 0.0}}, "must not be negative, nor all 0"),
        ({"steps": 0}, "steps must be 1 or more, not 0"),
        ({"probabilities": {"mood": "much"}}, "valid number"),
        ({"step": 4}, r"train\.schedule\.step is not a setting .* did you mean 'steps'\?"),
    ],
)
def test_settings_of_fixed_that_make_no_sense(settings, message):
    with pytest.raises(RecipeError, match=message):
        build("fixed", **settings)


def test_a_length_that_does_not_exist():
    with pytest.raises(RecipeError, match="'full', 'truncated' or 'drop-out'"):
        build("round-robin", length="short")
