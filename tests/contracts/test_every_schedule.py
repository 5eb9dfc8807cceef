"""What every schedule must do, over all registered ones and any sizes."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from plait.methods.schedules import SCHEDULES, Sampled, Schedule, Size


def sizes_for(table: dict[str, Any]) -> st.SearchStrategy[dict[str, Size]]:
    """Any sizes of one to five tasks; of two where the settings name tasks a and b."""
    names_tasks = any(isinstance(v, list | dict) for v in table.values()) or "leader" in table
    fewest, most = (2, 2) if names_tasks else (1, 5)
    counts = st.lists(st.integers(1, 30), min_size=fewest, max_size=most)
    return counts.map(
        lambda examples: {
            task: Size(e, -(-e // 4)) for task, e in zip("abcde", examples, strict=False)
        }
    )


PLACES = st.tuples(st.integers(0, 4), st.integers(1, 5))
FEW = settings(max_examples=25)


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


def test_it_never_runs_longer_than_its_cap(capped_table):
    schedule = SCHEDULES.build(capped_table, "train.schedule")

    @FEW
    @given(sizes_for(capped_table), PLACES)
    def check(sizes, place):
        taken = Counter(task for turn in turns(schedule, sizes, *place) for task in turn)
        assert max(taken.values()) <= capped_table["cap"]

    check()


@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_draws_come_by_their_shares(drawn_table, epoch):
    num = 30_000
    schedule = SCHEDULES.build({**drawn_table, "steps": num}, "train.schedule")
    assert isinstance(schedule, Sampled)
    sizes = {"a": Size(9000, 1125), "b": Size(2000, 250), "c": Size(400, 50)}
    shares = schedule.shares(sizes, epoch, 3)
    assert shares.keys() == sizes.keys()
    assert sum(shares.values()) == pytest.approx(1)
    drawn = Counter(task for (task,) in turns(schedule, sizes, epoch, 3, seed=11 + epoch))
    live = [task for task in sizes if shares[task]]
    assert sum(drawn[task] for task in live) == num
    fit = chisquare([drawn[task] for task in live], [num * shares[task] for task in live])
    assert fit.pvalue > 0.001


def test_equal_tasks_have_equal_shares_and_larger_ones_no_smaller(drawn_table):
    schedule = SCHEDULES.build(drawn_table, "train.schedule")
    assert isinstance(schedule, Sampled)
    if "probabilities" in drawn_table:  # the one setting that overrules sizes
        return

    @FEW
    @given(st.lists(st.integers(1, 10**9), min_size=1, max_size=5), PLACES)
    def check(examples, place):
        sizes = {task: Size(e, 1) for task, e in zip("abcde", examples, strict=False)}
        shares = schedule.shares(sizes, min(place[0], place[1] - 1), place[1])
        ordered = sorted(sizes, key=lambda task: sizes[task].examples)
        for smaller, larger in pairwise(ordered):
            assert 0 <= shares[smaller] <= shares[larger]
            if sizes[smaller] == sizes[larger]:
                assert shares[smaller] == shares[larger]

    check()
