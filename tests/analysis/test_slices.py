"""Slices: which rows they hold, and how they compare with all other rows."""

from __future__ import annotations

import numpy as np
import pytest

from plait.analysis.slices import (
    MIN_ROWS,
    cut_slices,
    has_negation,
    overlap,
    score_slices,
    share_words,
    split_words,
)
from plait.tasks import Verdicts


def names_of(rows, place=0, **given):
    """The slices that a row is in, beside one plain row."""
    plain = tuple("plain words here today" for _ in rows[0])
    return {name for name, mask in cut_slices([*rows, plain], **given).items() if mask[place]}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("It is not so", "negation"),
        ("It isn\u2019t so", "negation"),
        ("Slow but good", "contrast (but, although ...)"),
        ("Room 12", "a number"),
        ("Is it?", "a question"),
        ("It is!", "an exclamation"),
        ("It is a BAD one", "a word in capitals"),
    ],
)
def test_slices_of_one_text(text, name):
    assert name in names_of([(text,)])
    assert name not in names_of([(text,)], place=1)


@pytest.mark.parametrize(
    ("pair", "name"),
    [
        (("It is so", "It is not so"), "negation in one text only"),
        (("In 1999", "In 1998"), "other numbers"),
        (("Lyon to Turin", "Turin to Lyon"), "same words, other order"),
    ],
)
def test_slices_of_pairs(pair, name):
    assert name in names_of([pair])
    assert name not in names_of([(pair[0], pair[0])])


def test_words():
    assert split_words("Don't — the CAFÉ's 2nd_one!") == ["don't", "the", "café's", "2nd", "one"]
    assert split_words("it\u2019s") == ["it's"]
    assert share_words(["The cat sat.", "A CAT, the cat"]) == {"the", "cat"}
    assert not has_negation(["a", "note", "on", "knots"])
    assert "a word in capitals" not in names_of([("I am A boy",)])
    assert overlap("abc", "bcd") == 0.5
    assert overlap([], []) == 0.0


def test_unknown_words_and_truncated_texts():
    rows = [("new word",), ("known",)]
    slices = cut_slices(rows, known={"known", "word"}, truncated=np.array([False, True]))
    assert slices["a word not in training"].tolist() == [True, False]
    assert slices["truncated"].tolist() == [False, True]


def test_three_slices_by_length():
    rows = [("word " * n,) for n in (1, 2, 3, 4, 5, 6)]
    bands = {n: m for n, m in cut_slices(rows).items() if n.endswith(" words")}
    assert list(bands) == ["1 to 2 words", "3 to 4 words", "5 to 6 words"]
    assert np.sum(list(bands.values()), axis=0).tolist() == [1] * 6


def test_slices_of_all_or_no_rows_are_left_out():
    assert cut_slices([("same length",), ("same too",)]) == {}
    assert cut_slices([]) == {}


def verdicts_of(quality, metric="accuracy"):
    values = np.asarray(quality, float)
    return Verdicts(metric, values, 1 - values, None, [], [], None)


def first(mask, count):
    return np.arange(count) < mask


def test_a_bad_slice_stands_out_and_a_small_one_does_not():
    quality = np.ones(400)
    quality[:60] = np.arange(60) % 2
    slices = {
        "bad": first(60, 400),
        "small": first(MIN_ROWS - 1, 400),
        "like all": np.arange(400) % 3 > 0,
    }
    bad, like_all, small = score_slices(verdicts_of(quality), slices, np.random.default_rng(0))
    assert (bad.name, bad.count, bad.score, bad.is_worse) == ("bad", 60, 0.5, True)
    assert bad.difference == -0.5
    assert bad.interval.high < 0
    assert bad.stands_out
    assert (like_all.name, like_all.stands_out) == ("like all", False)
    assert (small.name, small.interval, small.stands_out) == ("small", None, False)
    enough = {"enough": first(MIN_ROWS, 400)}
    (piece,) = score_slices(verdicts_of(quality), enough, np.random.default_rng(0))
    assert piece.interval is not None
