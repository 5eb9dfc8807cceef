"""Every probe changes what it says it changes, in a way that a reader would accept."""

from __future__ import annotations

import re

import numpy as np
import pytest

from plait.analysis.audit import read_lists
from plait.analysis.audit.meaning import (
    negate,
    probe_negation,
)
from plait.analysis.audit.people import probe_rows, probe_sentences


def rng(_: str = "") -> np.random.Generator:
    return np.random.default_rng(0)


def one(probes, name):
    return next(probe for probe in probes if probe.name == name)


# --- people ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_pair", [False, True])
def test_sentences_change_one_word_and_the_neutral_one_another(is_pair):
    probes = list(probe_sentences(rng, is_pair=is_pair))
    assert len(probes) == 6
    for probe in probes:
        assert len(probe.trials) >= 40
        for trial in probe.trials:
            before, other = trial.neutral
            assert before == trial.before
            assert trial.before != trial.after != other != trial.before
            assert all(text[0].isupper() for text in (*trial.before, *trial.after))
            assert not any("{" in text for text in (*trial.before, *trial.after, *other))


ROWS = [
    ("He saw an Indian film.", "An Indian film was seen."),
    ("Nothing to swap.", "Nothing at all."),
    ("Priya celebrates Diwali.", "Diwali is celebrated by Priya."),
    ("a Muslim teacher", "the teacher"),
]


def test_rows_are_swapped_in_both_texts():
    probes = list(probe_rows(ROWS, rng, 10))
    (trial,) = one(probes, "gendered words, rows").trials
    assert trial.after == ("She saw an Indian film.", ROWS[0][1])
    day = trial.neutral[0][0].split(":")[0]
    assert day in read_lists().days
    assert trial.neutral[0] == tuple(f"{day}: {text}" for text in ROWS[0])
    assert trial.neutral[1] != trial.neutral[0]
    (trial,) = one(probes, "nationalities, rows").trials
    nation = re.search(r"(an?) (\w+) film", trial.after[0])
    assert nation[2] in read_lists().nationalities
    assert (nation[1] == "an") == (nation[2][0] in "AEIOU")
    assert trial.after[1] == f"{nation[1].capitalize()} {nation[2]} film was seen."
    (trial,) = one(probes, "names, by origin, rows").trials
    name = trial.after[0].split()[0]
    assert trial.after == (f"{name} celebrates Diwali.", f"Diwali is celebrated by {name}.")
    assert name not in read_lists().names["women"]["indian"]
    near = trial.neutral[1][0].split()[0]
    assert near in read_lists().names["women"]["indian"]
    assert len(one(probes, "religions, rows").trials) == 1
    assert one(probes, "festivals, rows").trials[0].source == 2


# --- meaning -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "negated"),
    [
        ("The museum is open.", "The museum is not open."),
        ("It was not open.", "It was open."),
        ("It isn't open.", "It is open."),
        ("I think it is so.", "I think it is not so."),
        ("How do I stop it?", "How do I not stop it?"),
        ("Why does the cat sleep?", None),
        ("Is it open?", None),
        ("Cats sleep.", None),
    ],
)
def test_negation_by_hand(text, negated):
    assert negate(text) == negated


def test_praise_falls_and_blame_rises():
    probes = list(probe_negation([("It is not bad.",)], rng, 9, is_pair=False))
    own = one(probes, "'not', own sentences")
    assert {trial.way for trial in own.trials} == {-1, 1}
    for trial in own.trials:
        assert trial.after[0].replace("not ", "") == trial.before[0]
    rows = one(probes, "'not', rows")
    assert (rows.should, rows.trials[0].after) == ("either", ("It is bad.",))
