"""Schedules against turns worked out by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from plait.errors import RecipeError
from plait.methods.schedules import SCHEDULES, Schedule, Size

SIZES = {"mood": Size(20, 5), "same": Size(8, 2), "near": Size(10, 3)}


def build(name: str, **settings: object) -> Schedule:
    return SCHEDULES.build({"name": name, **settings}, "train.schedule")


def spell(schedule: Schedule, sizes: dict[str, Size] = SIZES, seed: int = 0, epoch: int = 0) -> str:
    """First letters of the tasks, turns of several in one word."""
    made = schedule.epoch(sizes, epoch, epoch + 1, np.random.default_rng(seed))
    return " ".join("".join(task[0] for task in turn) for turn in made)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "m m m m m s s n n n"),
        ({"order": ["near", "mood", "same"]}, "n n n m m m m m s s"),
        ({"length": "truncated"}, "m m s s n n"),
        ({"length": "truncated", "order": ["same", "near", "mood"]}, "s s n n m m"),
        ({"cap": 3}, "m m m s s n n n"),
        ({"cap": 1, "length": "truncated"}, "m s n"),
        ({"cap": 9}, "m m m m m s s n n n"),
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
        ({"cap": 3}, "m s n m s n m s n"),
        ({"cap": 3, "together": True, "length": "truncated"}, "msn msn"),
        ({"cap": 1, "together": True, "length": "truncated"}, "msn"),
        ({"cap": 4, "length": "drop-out"}, "m s n m s n m n m"),
    ],
)
def test_round_robin(settings, expected):
    assert spell(build("round-robin", **settings)) == expected


# --- by epoch ---


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ["m m m m m", "s s", "n n n", "m m m m m", "s s"]),
        ({"order": ["near", "mood", "mood", "same"]}, ["n n n", "m m m m m", "m m m m m", "s s"]),
        ({"cap": 2}, ["m m", "s s", "n n", "m m"]),
        ({"cap": 1, "order": ["same", "near", "mood"]}, ["s", "n", "m", "s"]),
    ],
)
def test_by_epoch(settings, expected):
    schedule = build("by-epoch", **settings)
    assert [spell(schedule, epoch=epoch) for epoch in range(len(expected))] == expected


SUM_12 = ["sst", "para", "sts", "sts", "sst", "para", "para", "sts", "sst"]


def test_the_order_sum_12_adds_up_to_12_counted_from_0_and_to_15_counted_from_1():
    sizes = {"sst": Size(1, 1), "para": Size(1, 1), "sts": Size(1, 1)}
    schedule = build("by-epoch", order=SUM_12)
    trained = [
        next(schedule.epoch(sizes, epoch, 9, np.random.default_rng(0)))[0] for epoch in range(9)
    ]
    assert trained == SUM_12
    for task in sizes:
        epochs = [epoch for epoch, name in enumerate(trained) if name == task]
        assert len(epochs) == 3
        assert sum(epochs) == 12
        assert sum(epoch + 1 for epoch in epochs) == 15


# --- simultaneous ---


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"leader": "near"}, "msn msn msn"),
        ({"leader": "mood", "restart": ["same"]}, "msn msn msn msn msn"),
        ({"leader": "same", "restart": ["near", "mood"]}, "msn msn"),
    ],
)
def test_simultaneous(settings, expected):
    schedule = build("simultaneous", **settings)
    assert spell(schedule) == spell(schedule, epoch=3, seed=5) == expected


def test_simultaneous_goes_on_but_for_the_leader_and_what_restarts():
    schedule = build("simultaneous", leader="mood", restart=["near"])
    assert [t for t in SIZES if schedule.keeps_place(t)] == ["same"]
    schedule = build("simultaneous", leader="mood")
    assert [t for t in SIZES if schedule.keeps_place(t)] == ["same", "near"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"leader": "mod"}, r"^leader names 'mod', no task of the stage; did you mean 'mood'\?$"),
        (
            {"leader": "mood", "restart": ["nea"]},
            r"^restart names 'nea', no task .*; did you mean 'near'\?$",
        ),
    ],
)
def test_simultaneous_checks_names_before_the_first_turn(settings, message):
    with pytest.raises(ValueError, match=message):
        next(build("simultaneous", **settings).epoch(SIZES, 0, 1, np.random.default_rng(0)))


# --- shares by size ---

# Perfect squares, so that roots come out whole: 400 = 20^2, 100 = 10^2, 25 = 5^2.
SQUARES = {"mood": Size(400, 50), "same": Size(100, 13), "near": Size(25, 4)}


def test_annealed_exponents_over_five_epochs():
    alpha = SCHEDULES["annealed"]().alpha
    assert [alpha(e, 5) for e in range(5)] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    assert [alpha(e, 2) for e in range(2)] == pytest.approx([1.0, 0.2])
    assert alpha(0, 1) == 1.0  # no division by E - 1 = 0


@pytest.mark.parametrize(
    ("table", "place", "expected"),
    [
        ({"name": "proportional"}, (0, 3), [400 / 525, 100 / 525, 25 / 525]),
        ({"name": "proportional"}, (2, 3), [400 / 525, 100 / 525, 25 / 525]),
        ({"name": "square-root"}, (1, 3), [20 / 35, 10 / 35, 5 / 35]),
        ({"name": "temperature", "temperature": 1}, (0, 1), [400 / 525, 100 / 525, 25 / 525]),
        ({"name": "temperature", "temperature": 2.0}, (0, 1), [20 / 35, 10 / 35, 5 / 35]),
        ({"name": "temperature", "temperature": 1e9}, (0, 1), [1 / 3, 1 / 3, 1 / 3]),
        # A power that no float holds: 400^1000.
        ({"name": "temperature", "temperature": 1e-3}, (0, 1), [1.0, 0.0, 0.0]),
        ({"name": "annealed"}, (0, 5), [400 / 525, 100 / 525, 25 / 525]),
        ({"name": "annealed"}, (0, 1), [400 / 525, 100 / 525, 25 / 525]),
        # alpha = 0.2, each task a quarter of the one before: 1, 4^-0.2 = 0.757858, 0.574349.
        ({"name": "annealed"}, (4, 5), [0.428777, 0.324952, 0.246270]),
    ],
)
def test_shares_by_size(table, place, expected):
    shares = SCHEDULES.build(table, "train.schedule").shares(SQUARES, *place)
    assert list(shares) == list(SQUARES)
    assert list(shares.values()) == pytest.approx(expected, abs=2e-6)


DRAWN = [{"name": "temperature", "temperature": 2.0}]
DRAWN += [{"name": name} for name in ("proportional", "square-root", "annealed")]


@pytest.mark.parametrize("table", DRAWN, ids=lambda table: table["name"])
def test_drawn_epochs_are_as_long_as_all_batches_unless_set_and_go_on(table):
    schedule = SCHEDULES.build(table, "train.schedule")
    assert len(spell(schedule).split()) == 10
    assert schedule.keeps_place("mood")
    schedule = SCHEDULES.build({**table, "steps": 4}, "train.schedule")
    assert len(spell(schedule).split()) == 4


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "temperature"}, r"temperature must be set"),
        ({"name": "temperature", "temperature": 0}, r"temperature must be above 0, not 0"),
        ({"name": "temperature", "temperature": -1.5}, r"temperature must be above 0, not -1.5"),
        ({"name": "annealed", "steps": 0}, r"steps must be 1 or more, not 0"),
        ({"name": "sequential", "cap": 0}, r"cap must be 1 or more, not 0"),
        ({"name": "round-robin", "cap": -2}, r"cap must be 1 or more, not -2"),
        ({"name": "by-epoch", "cap": 0}, r"cap must be 1 or more, not 0"),
        ({"name": "by-epoch", "cap": 1.5}, r"valid integer"),
    ],
)
def test_settings_that_make_no_sense(table, message):
    with pytest.raises(RecipeError, match=message):
        SCHEDULES.build(table, "train.schedule")


# --- all ---


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


@pytest.mark.parametrize("name", ["sequential", "round-robin"])
@pytest.mark.parametrize("order", [["mood", "same"], ["mood", "same", "near", "near"], []])
def test_an_order_names_each_task_once(name, order):
    with pytest.raises(ValueError, match=r"^order must name each task once: mood, same, near$"):
        spell(build(name, order=order))
