"""What every schedule must do, over all registered ones and any sizes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.schedules import SCHEDULES, Schedule, Size

# Always with the two tasks that the cases' settings name.
SIZES = st.lists(st.integers(1, 30), min_size=2, max_size=2).map(
    lambda examples: dict(zip("ab", (Size(e, -(-e // 4)) for e in examples), strict=True))
)
PLACES = st.tuples(st.integers(0, 4), st.integers(1, 5))
FEW = settings(max_examples=25, deadline=None)


@pytest.fixture
def schedule(schedule_table) -> Schedule:
    """One schedule after the other."""
    return SCHEDULES.build(schedule_table, "train.schedule")


def turns(schedule: Schedule, sizes: dict[str, Size], epoch: int = 0, num_epochs: int = 1, seed=0):
    return list(schedule.epoch(sizes, epoch, num_epochs, np.random.default_rng(seed)))


def test_turns_name_known_tasks_once_each(schedule):
    @FEW
    @given(SIZES, PLACES, st.integers(0, 99))
    def check(sizes, place, seed):
        made = turns(schedule, sizes, min(place[0], place[1] - 1), place[1], seed)
        assert made
        for turn in made:
            assert isinstance(turn, tuple)
            assert turn
            assert set(turn) <= set(sizes)
            assert len(set(turn)) == len(turn)

    check()


def test_it_repeats_exactly_under_its_seed(schedule):
    @FEW
    @given(SIZES, PLACES, st.integers(0, 99))
    def check(sizes, place, seed):
        epoch, num_epochs = min(place[0], place[1] - 1), place[1]
        assert turns(schedule, sizes, epoch, num_epochs, seed) == turns(
            schedule, sizes, epoch, num_epochs, seed
        )

    check()


def test_an_epoch_leaves_nothing_behind(schedule):
    sizes = {"a": Size(20, 5), "b": Size(7, 2)}
    first = turns(schedule, sizes, 0, 2)
    turns(schedule, sizes, 1, 2, seed=5)
    next(schedule.epoch(sizes, 1, 2, np.random.default_rng(1)))  # begun, never finished
    assert turns(schedule, sizes, 0, 2) == first


def test_it_says_whether_a_task_keeps_its_place(schedule):
    assert isinstance(schedule.keeps_place("a"), bool)


def test_one_task_alone_is_fine(schedule_table):
    if any(isinstance(value, list | dict) for value in schedule_table.values()):
        return  # its settings name two tasks
    schedule = SCHEDULES.build(schedule_table, "train.schedule")
    made = turns(schedule, {"only": Size(9, 3)})
    assert set(made) == {("only",)}


def test_no_task_is_forgotten(schedule):
    sizes = {"a": Size(400, 100), "b": Size(200, 50)}
    seen = Counter(
        task
        for epoch in range(3)
        for turn in turns(schedule, sizes, epoch, 3, epoch)
        for task in turn
    )
    assert min(seen["a"], seen["b"]) > 0
