"""A dev set is drawn class by class, and equal texts stay together."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from plait.draft.held_out import bands, draw_dev

rng = np.random.default_rng(3)


def test_every_class_keeps_its_share():
    labels = ["a"] * 500 + ["b"] * 100 + ["c"] * 10
    drawn = draw_dev(labels, np.arange(610, dtype=np.uint64), 0.1, [1])
    assert Counter(np.array(labels)[drawn]) == {"a": 50, "b": 10, "c": 1}


@pytest.mark.parametrize("seed", range(20))
def test_equal_texts_are_on_one_side(seed):
    prints = np.random.default_rng(seed).integers(0, 40, 300).astype(np.uint64)
    labels = [int(p) % 3 for p in prints]
    drawn = draw_dev(labels, prints, 0.2, [seed])
    assert set(prints[drawn]) & set(prints[~drawn]) == set()
    assert 0.1 < drawn.mean() < 0.3
    assert set(np.array(labels)[drawn]) == set(np.array(labels)[~drawn]) == {0, 1, 2}


def test_a_class_of_one_text_stays_in_training():
    prints = np.array([1, 2, 3, 4, 9, 9], np.uint64)
    drawn = draw_dev(["a"] * 4 + ["b"] * 2, prints, 0.5, [0])
    assert drawn.tolist()[4:] == [False, False]
    assert drawn.sum() == 2


def test_the_seed_decides():
    prints = np.arange(100, dtype=np.uint64)
    first, again, other = (draw_dev([0] * 100, prints, 0.1, [s]).tolist() for s in (1, 1, 2))
    assert first == again != other


def test_scores_are_sorted_into_fifths():
    assert Counter(bands(list(range(100)))) == dict.fromkeys(range(5), 20)
    assert len(set(bands([1.0] * 10))) == 1
