"""Sizes of batches: they hold every batch, waste little, and are the best there are."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.data import Buckets
from plait.data.buckets import GRAIN, choose_sizes, round_up


def waste(seen: list[int], sizes: tuple[int, ...]) -> int:
    return sum(min(s for s in sizes if s >= n) - n for n in seen)


def best_by_trying(seen: list[int], count: int) -> int:
    values = sorted({-(-n // GRAIN) * GRAIN for n in seen})
    kept = min(count, len(values)) - 1
    return min(waste(seen, (*some, values[-1])) for some in combinations(values[:-1], kept))


@given(st.lists(st.integers(1, 90), min_size=1, max_size=12), st.integers(1, 4))
def test_no_other_sizes_waste_less(seen: list[int], count: int) -> None:
    sizes = choose_sizes(np.array(seen), count)
    assert len(sizes) <= count
    assert list(sizes) == sorted(set(sizes))
    assert waste(seen, sizes) == best_by_trying(seen, count)


def test_sizes_by_hand() -> None:
    seen = np.array([7, 8, 8, 8, 30, 31, 100])
    assert choose_sizes(seen, 1) == (104,)
    assert choose_sizes(seen, 2) == (32, 104)
    assert choose_sizes(seen, 3) == (8, 32, 104)
    assert choose_sizes(seen, 9) == (8, 32, 104)


@pytest.mark.parametrize("inputs", [1, 2])
def test_every_batch_has_room(inputs: int) -> None:
    generator = np.random.default_rng(3)
    lengths = generator.geometric(0.1, size=(inputs, 500)).clip(3, 64).astype(np.int64)
    buckets = Buckets.fit(lengths, 16)
    for _ in range(300):
        some = lengths[:, generator.integers(500, size=16)]
        length, total = buckets.room(some)
        assert length >= some.max()
        assert total >= some.sum()
    heaviest = lengths[:, np.argsort(lengths.sum(axis=0))[-16:]]
    assert buckets.room(heaviest)[1] >= heaviest.sum()
    assert Buckets.fit(lengths, 16) == buckets


def test_a_last_batch_smaller_than_the_rest_fits_as_well() -> None:
    lengths = np.array([[5, 9, 12]])
    buckets = Buckets.fit(lengths, 64)
    assert buckets.room(lengths) == (16, 32)
    assert buckets.room(lengths[:, :1])[0] >= 5


@given(st.integers(1, 100_000))
def test_rounding_up_adds_an_eighth_at_most(number: int) -> None:
    rounded = round_up(number)
    assert number <= rounded <= max(number + GRAIN, number * 1.25)
    assert rounded % GRAIN == 0
    assert round_up(rounded) == rounded


def test_tasks_together_have_room() -> None:
    generator = np.random.default_rng(0)
    tasks = [(generator.integers(3, top, size=(1, 200)), size) for top, size in ((20, 8), (60, 4))]
    buckets = Buckets.fit_together(tasks)
    assert len(buckets.lengths) <= 2
    assert len(buckets.totals) <= 3
    for _ in range(200):
        drawn = [own[:, generator.integers(200, size=size)].ravel() for own, size in tasks]
        every = np.concatenate(drawn)
        length, total = buckets.room(every)
        assert length >= every.max()
        assert total >= every.sum()
