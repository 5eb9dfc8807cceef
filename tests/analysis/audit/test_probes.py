"""Every probe changes what it says it changes, in a way that a reader would accept."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.analysis.audit import read_lists
from plait.analysis.audit.meaning import (
    change_places,
    negate,
    probe_negation,
    probe_order,
    probe_places,
)
from plait.analysis.audit.noise import probe_noise, slip
from plait.analysis.audit.people import probe_rows, probe_sentences
from plait.analysis.audit.trials import change_rows
from plait.data.swaps import GENDERED


def rng(_: str = "") -> np.random.Generator:
    return np.random.default_rng(0)


def one(probes, name):
    return next(probe for probe in probes if probe.name == name)


# --- the lists ---------------------------------------------------------------------------


def test_every_sentence_has_its_slots():
    lists = read_lists()
    for is_pair in (False, True):
        for slot in ("who", "festival"):
            for texts in lists.sentences(slot, is_pair=is_pair):
                assert len(texts) == 1 + is_pair
                for text in texts:
                    assert set(re.findall(r"{(\w+)}", text)) == {slot, "day"}


def test_no_word_stands_twice():
    lists = read_lists()
    names = [n for origins in lists.names.values() for group in origins.values() for n in group]
    for words in (names, lists.nationalities, lists.religions, lists.festivals, lists.roles):
        assert len(set(words)) == len(words)
    assert lists.names["women"].keys() == lists.names["men"].keys()


def test_every_role_has_a_counterpart():
    known = {word for pair in GENDERED for word in pair}
    for role in read_lists().roles:
        assert known & set(role.split()), role


def test_pairs_of_word_order_have_the_same_words():
    for first, second in read_lists().word_order["pairs"]:
        assert first != second
        words = [sorted(re.findall(r"\w+", text.lower())) for text in (first, second)]
        assert words[0] == words[1]


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


def test_a_name_is_swapped_neutrally_within_its_group():
    names = read_lists().names
    home = {
        name: (gender, origin)
        for gender, origins in names.items()
        for origin, group in origins.items()
        for name in group
    }
    probes = list(probe_sentences(rng, is_pair=False))
    for by, place in (("gender", 0), ("origin", 1)):
        for trial in one(probes, f"names, by {by}, own sentences").trials:
            before, after, neutral = (
                next(home[w] for w in re.findall(r"\w+", text) if w in home)
                for (text,) in (trial.before, trial.after, trial.neutral[1])
            )
            assert neutral == before
            assert after[place] != before[place]
            assert after[1 - place] == before[1 - place]


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


def test_no_more_rows_than_wanted_and_none_unchanged():
    rows = [(f"text {i}",) for i in range(50)]
    found = list(
        change_rows(rows, lambda t, _: None if t[0][-1] == "0" else (t[0] + "!",), rng(), 7)
    )
    assert len(found) == 7
    assert not list(change_rows(rows, lambda t, _: t, rng(), 7))
    assert not list(change_rows(rows, lambda t, _: (" ",), rng(), 7))


# --- noise -------------------------------------------------------------------------------


@given(st.text(alphabet="abcdefg .,'é", max_size=60), st.integers(0, 9))
def test_slips_are_slight(text, seed):
    """One letter in eight long words at most, and never the first of a word."""
    slipped = slip(text, np.random.default_rng(seed))
    words = re.findall(r"[^\W\d_]{4,}", text)
    assert abs(len(slipped) - len(text)) <= -(-len(words) // 8)
    assert [w[0] for w in slipped.split()] == [w[0] for w in text.split()]


def test_noise_is_of_every_kind():
    probes = {
        p.name: p for p in probe_noise([('He said: "It\'s (not) a well-kept Garden!"',)], rng, 9)
    }
    after = {name: probe.trials[0].after[0] for name, probe in probes.items()}
    assert after["small letters"] == 'he said: "it\'s (not) a well-kept garden!"'
    assert after["capitals"].isupper()
    assert after["no punctuation"] == "He said It's not a well-kept Garden"
    assert after["wide spaces"].startswith('He   said:   "It')
    assert "typing slips" in after


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


def test_words_that_change_places():
    text = "Trains from Lyon to Turin are slow."
    assert change_places(text, rng()) == "Trains from Turin to Lyon are slow."
    assert change_places("The dog sleeps.", rng()) == "The sleeps dog."
    assert change_places("Dogs sleep.", rng()) is None
    assert change_places("A dog, a dog", rng()) is None


def test_pairs_are_set_beside_themselves():
    rows = [("Lyon is near Turin and Milan.", "x"), ("One is not two.", "y")]
    probes = [
        *probe_order(rows, rng, 9),
        *probe_places(rows, rng, 9),
        *probe_negation(rows, rng, 9, is_pair=True),
    ]
    turned = one(probes, "texts in the other order")
    assert all(trial.after == trial.before[::-1] for trial in turned.trials)
    assert {p.should for p in probes} == {"stay", "agree", "move"}
    for probe in probes:
        for trial in probe.trials if probe.should == "move" else ():
            assert trial.before[0] == trial.before[1] == trial.after[0] != trial.after[1]


def test_praise_falls_and_blame_rises():
    probes = list(probe_negation([("It is not bad.",)], rng, 9, is_pair=False))
    own = one(probes, "'not', own sentences")
    assert {trial.way for trial in own.trials} == {-1, 1}
    for trial in own.trials:
        assert trial.after[0].replace("not ", "") == trial.before[0]
    rows = one(probes, "'not', rows")
    assert (rows.should, rows.trials[0].after) == ("either", ("It is bad.",))
