"""Several models' answers become one, by vote or by mean."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from plait.tasks import Classes, Labels, Score

CLASSES = Classes(labels=("a", "b", "c"))
LETTERS = ("a", "b", "c")


def one(*members):
    """Answers of members to one example."""
    return np.array(members, dtype=np.float64)[:, None]


def test_the_class_with_most_votes_wins():
    answers = one([0.5, 0.3, 0.2], [0.6, 0.4, 0.0], [0.1, 0.8, 0.1])
    assert CLASSES.combine(answers, "mode")[0] == pytest.approx(
        [0.55, 0.35, 0.1]
    )  # of the first two
    assert CLASSES.combine(answers, "mean")[0] == pytest.approx([0.4, 0.5, 0.1])


def test_an_outvoted_mean_gives_way_to_those_who_agree():
    """Two choose class 0, one is very sure of class 1: the mean alone would say 1."""
    answers = one([0.51, 0.49], [0.55, 0.45], [0.01, 0.99])
    assert CLASSES.combine(answers, "mode")[0] == pytest.approx([0.53, 0.47])
    assert CLASSES.combine(answers, "mean")[0] == pytest.approx([0.356666, 0.643333], abs=1e-5)


@pytest.mark.parametrize(
    ("members", "chosen"),
    [
        (([0.9, 0.1, 0.0], [0.4, 0.6, 0.0]), 0),  # one vote each; means .65 and .35
        (([0.6, 0.4, 0.0], [0.1, 0.9, 0.0]), 1),  # .35 and .65
        (([0.5, 0.1, 0.4], [0.1, 0.5, 0.4]), 0),  # .3 and .3: the first; .4 of 2 has no vote
        (([0.5, 0.2, 0.3], [0.1, 0.5, 0.4]), 1),  # .3 and .35, and again .35 without a vote
    ],
)
def test_ties_go_to_the_higher_mean_probability(members, chosen):
    found = CLASSES.combine(one(*members), "mode")
    assert found[0].argmax() == chosen
    assert found[0].sum() == pytest.approx(1)


def test_scores_have_a_median_or_a_mean():
    odd = np.array([[1.0, 4.0], [2.0, 0.0], [4.5, 3.0]])
    assert Score().combine(odd, "mode").tolist() == [2.0, 3.0]
    assert Score().combine(odd, "mean") == pytest.approx([2.5, 7 / 3])
    assert Score().combine(odd[:2], "mode").tolist() == [1.5, 2.0]  # of two, their mean


@given(
    arrays(
        np.float32, (5, 7, 3), elements=st.floats(0.0009765625, 1, width=32, allow_subnormal=False)
    )
)
def test_the_highest_probability_is_always_the_vote(raw):
    answers = (raw / raw.sum(axis=2, keepdims=True)).astype(np.float64)
    found = CLASSES.combine(answers, "mode")
    assert found.sum(axis=1) == pytest.approx(1)
    for row in range(7):
        votes = np.bincount(answers[:, row].argmax(axis=1), minlength=3)
        best = [c for c in range(3) if votes[c] == votes.max()]
        means = answers[:, row].mean(axis=0)
        assert found[row].argmax() == max(best, key=lambda c: (means[c], -c))


def test_each_label_is_voted_on_by_itself():
    answers = np.array([[[0.6, 0.9, 0.4]], [[0.6, 0.1, 0.7]], [[0.1, 0.2, 0.2]]])
    # Two say yes to the first, though the mean is below; one to the second and to the third.
    assert Labels(labels=LETTERS[: (answers).shape[-1]]).combine(answers, "mode")[
        0
    ] == pytest.approx([0.6, 0.4, 1.3 / 3])
    assert Labels(labels=LETTERS[: (answers).shape[-1]]).combine(answers, "mean")[
        0
    ] == pytest.approx([1.3 / 3, 0.4, 1.3 / 3])
    # Of two who differ the mean decides.
    assert (
        Labels(labels=LETTERS[: (answers[:2]).shape[-1]]).combine(answers[:2], "mode")[0] >= 0.5
    ).tolist() == [True, True, True]
    # A member that just reaches the threshold says yes.
    just = np.array([[[0.5]], [[0.5]], [[0.2]]])
    assert Labels(labels=LETTERS[: (just).shape[-1]]).combine(just, "mode")[0] == pytest.approx(
        [0.5]
    )
    # One very sure member is outvoted: the others' mean stands.
    sure = np.array([[[0.99]], [[0.4]], [[0.3]]])
    assert Labels(labels=LETTERS[: (sure).shape[-1]]).combine(sure, "mode")[0] == pytest.approx(
        [0.35]
    )
    assert Labels(labels=LETTERS[: (np.zeros((2, 0, 3))).shape[-1]]).combine(
        np.zeros((2, 0, 3)), "mode"
    ).shape == (0, 3)
