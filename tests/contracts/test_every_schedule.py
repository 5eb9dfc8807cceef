"""What every schedule must do, over all registered ones and any sizes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plait.schedules import SCHEDULES, Schedule, Size


def sizes_for(table: dict[str, Any]) -> st.SearchStrategy[dict[str, Size]]:
    """Any sizes of one to five tasks; of two where the settings name tasks a and b."""
    names_tasks = any(isinstance(value, list | dict) for value in table.values())
    fewest, most = (2, 2) if names_tasks else (1, 5)
    counts = st.lists(st.integers(1, 30), min_size=fewest, max_size=most)
    return counts.map(
        lambda examples: {
            task: Size(e, -(-e // 4)) for task, e in zip("abcde", examples, strict=False)
        }
    )


PLACES = st.tuples(st.integers(0, 4), st.integers(1, 5))
FEW = settings(max_examples=25, deadline=None)


@pytest.fixture
def schedule(schedule_table) -> Schedule:
    """One schedule after the other."""
    return SCHEDULES.build(schedule_table, "train.schedule")


def turns(schedule: Schedule, sizes: dict[str, Size], epoch: int = 0, num_epochs: int = 1, seed=0):
    return list(schedule.epoch(sizes, epoch, num_epochs, np.random.default_rng(seed)))


def test_turns_name_known_tasks_once_each(schedule, schedule_table):
    @FEW
    @given(sizes_for(schedule_table), PLACES, st.integers(0, 99))
    def check(sizes, place, seed):
        made = turns(schedule, sizes, min(place[0], place[1] - 1), place[1], seed)
        assert made
        for turn in made:
            assert isinstance(turn, tuple)
            assert turn
            assert set(turn) <= set(sizes)
            assert len(set(turn)) == len(turn)

    check()


def test_it_repeats_exactly_under_its_seed(schedule, schedule_table):
    @FEW
    @given(sizes_for(schedule_table), PLACES, st.integers(0, 99))
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


def test_no_task_is_forgotten(schedule):
    sizes = {"a": Size(400, 100), "b": Size(200, 50)}
    seen = Counter(
        task
        for epoch in range(3)
        for turn in turns(schedule, sizes, epoch, 3, epoch)
        for task in turn
    )
    assert min(seen["a"], seen["b"]) > 0
