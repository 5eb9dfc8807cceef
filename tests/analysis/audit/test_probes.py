"""Every probe changes what it says it changes, in a way that a reader would accept."""

from __future__ import annotations

import re

import numpy as np
import pytest

from plait.analysis.audit import builtin
from plait.analysis.audit.probes import (
    change_places,
    make_probes,
    negate,
    probe_negation,
    probe_noise,
)


def rng(_: str = "") -> np.random.Generator:
    return np.random.default_rng(0)


def one(probes, name):
    return next(probe for probe in probes if probe.name == name)


# --- the lists ---------------------------------------------------------------------------


FILE, MEANING = builtin()


def swaps(rows=(), *, is_pair=False):
    """Return the built-in probes of swapped words, by name."""
    probes = make_probes(rows, rng, 10, is_pair=is_pair)
    names = [f"{name}, {where}" for name in FILE.probes for where in ("own sentences", "rows")]
    return {probe.name: probe for probe in probes if probe.name in names}


def test_every_sentence_has_its_slots():
    for probe in FILE.probes.values():
        for is_pair in (False, True):
            for texts in FILE.texts(probe, is_pair):
                assert len(texts) == 1 + is_pair
                for text in texts:
                    assert set(re.findall(r"{(\w+)}", text)) == {"word", "neutral"}


# --- people ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_pair", [False, True])
def test_sentences_change_one_word_and_the_neutral_one_another(is_pair):
    probes = [probe for name, probe in swaps(is_pair=is_pair).items() if "own" in name]
    assert len(probes) == 6
    for probe in probes:
        assert len(probe.trials) >= 40
        for trial in probe.trials:
            before, other = trial.neutral
            assert before == trial.before
            assert trial.before != trial.after != other != trial.before
            assert all(text[0].isupper() for text in (*trial.before, *trial.after))
            assert not any("{" in text for text in (*trial.before, *trial.after, *other))


@pytest.mark.parametrize("name", ["names, by gender", "names, by origin"])
def test_a_name_is_swapped_neutrally_within_its_group(name):
    home = {
        word: (number, place)
        for number, groups in enumerate(FILE.probes[name].sets)
        for place, group in enumerate(groups)
        for word in group
    }
    for trial in swaps()[f"{name}, own sentences"].trials:
        before, after, neutral = (
            next(home[w] for w in re.findall(r"\w+", text) if w in home)
            for (text,) in (trial.before, trial.after, trial.neutral[1])
        )
        assert neutral == before
        assert after[0] == before[0]
        assert after[1] != before[1]


ROWS = [
    ("He saw an Indian film.", "An Indian film was seen."),
    ("Nothing to swap.", "Nothing at all."),
    ("Priya celebrates Diwali.", "Diwali is celebrated by Priya."),
    ("a Muslim teacher", "the teacher"),
]


def test_rows_are_swapped_in_both_texts():
    probes = swaps(ROWS, is_pair=True)
    assert "names, by gender, rows" not in probes
    (trial,) = probes["gendered words, rows"].trials
    assert trial.after == ("She saw an Indian film.", ROWS[0][1])
    day = trial.neutral[0][0].split(":")[0]
    assert day in FILE.neutral
    assert trial.neutral[0] == tuple(f"{day}: {text}" for text in ROWS[0])
    assert trial.neutral[1] != trial.neutral[0]
    (trial,) = probes["nationalities, rows"].trials
    nation = re.search(r"(an?) (\w+) film", trial.after[0])
    assert (nation[2],) in FILE.probes["nationalities"].words
    assert (nation[1] == "an") == (nation[2][0] in "AEIOU")
    assert trial.after[1] == f"{nation[1].capitalize()} {nation[2]} film was seen."
    (trial,) = probes["names, by origin, rows"].trials
    name, near = trial.after[0].split()[0], trial.neutral[1][0].split()[0]
    assert trial.after == (f"{name} celebrates Diwali.", f"Diwali is celebrated by {name}.")
    indian = next(group for group in FILE.probes["names, by origin"].sets[0] if "Priya" in group)
    assert name not in indian
    assert near in indian
    assert len(probes["religions, rows"].trials) == 1
    assert probes["festivals, rows"].trials[0].source == 2


# --- noise -------------------------------------------------------------------------------


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


def test_praise_falls_and_blame_rises():
    probes = list(probe_negation([("It is not bad.",)], rng, 9, is_pair=False))
    own = one(probes, "'not', own sentences")
    assert {trial.way for trial in own.trials} == {-1, 1}
    for trial in own.trials:
        assert trial.after[0].replace("not ", "") == trial.before[0]
    rows = one(probes, "'not', rows")
    assert (rows.should, rows.trials[0].after) == ("either", ("It is bad.",))
