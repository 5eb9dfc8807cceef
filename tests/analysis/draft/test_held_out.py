"""A dev set is drawn class by class, and equal texts stay together."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from plait.analysis.draft.held_out import Pool, bands, draw_dev


def draw(labels, prints, fraction, seed):
    """Which rows of one task are dev."""
    (drawn,) = draw_dev([Pool(labels, prints, fraction)], seed)
    return drawn


def test_every_class_keeps_its_share():
    labels = ["a"] * 500 + ["b"] * 100 + ["c"] * 10
    drawn = draw(labels, np.arange(610, dtype=np.uint64), 0.1, 1)
    assert Counter(np.array(labels)[drawn]) == {"a": 50, "b": 10, "c": 1}


@pytest.mark.parametrize("seed", range(20))
def test_equal_texts_are_on_one_side(seed):
    prints = np.random.default_rng(seed).integers(0, 40, 300).astype(np.uint64)
    labels = [int(p) % 3 for p in prints]
    drawn = draw(labels, prints, 0.2, seed)
    assert set(prints[drawn]) & set(prints[~drawn]) == set()
    assert 0.1 < drawn.mean() < 0.3
    assert set(np.array(labels)[drawn]) == set(np.array(labels)[~drawn]) == {0, 1, 2}


@pytest.mark.parametrize("seed", range(20))
def test_tasks_of_the_same_texts_have_the_same_dev(seed):
    generator = np.random.default_rng(seed)
    prints = np.arange(1000, dtype=np.uint64)
    first, second = generator.integers(0, 5, 1000), generator.choice(3, 1000, p=[0.9, 0.08, 0.02])
    some = generator.permutation(1000)[:600]  # in another order, and not all of them
    pools = [
        Pool(first.tolist(), prints, 0.1),
        Pool(second[some].tolist(), prints[some], 0.1),
        Pool([0] * 100, np.arange(5000, 5100, dtype=np.uint64), 0.2),
    ]
    ours, theirs, apart = draw_dev(pools, seed)
    assert not set(prints[ours]) & set(prints[some][~theirs])
    assert not set(prints[~ours]) & set(prints[some][theirs])
    for drawn, labels in ((ours, first), (theirs, second[some])):
        for label in set(labels.tolist()):
            count, num_rows = drawn[labels == label].sum(), (labels == label).sum()
            assert max(1, round(0.1 * num_rows)) <= count < num_rows
            assert count <= 0.19 * num_rows or num_rows < 40
        assert 0.095 <= drawn.mean() <= 0.13
    assert apart.sum() == 20
    assert (draw_dev(pools[2:], seed)[0] == apart).all()  # by none of its neighbours


def test_scores_are_sorted_into_fifths():
    assert Counter(bands(list(range(100)))) == dict.fromkeys(range(5), 20)
    assert len(set(bands([1.0] * 10))) == 1
