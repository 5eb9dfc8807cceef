"""Probes of a user's own: what a file may say, what becomes of it, in any language."""

from __future__ import annotations

import numpy as np
import pytest

from plait.analysis.audit import audit, read_probes
from plait.analysis.audit.probes import make_probes
from plait.errors import UsageError
from plait.inference.ensemble import load

GERMAN = """
neutral = ["Montag", "Dienstag", "Mittwoch"]

[probes.Namen]
words = [["Heike", "Katrin"], ["Fatma", "Zeynep"]]
sentences = ["{word} kam am {neutral} zu spät.", "am {neutral} rief {word} an {und} {ging}."]
pairs = [["{word} kocht.", "Heute kocht {word}."]]

[probes.Orte]
words = ["Bonn", "Kassel", "Halle"]
sentences = ["Am {neutral} regnete es in {word}."]
"""

ROWS = [("Heike und Heike wohnen in Bonn.",), ("Es regnet.",), ("a Fatma, an Fatma, Fatmas",)]


@pytest.fixture
def write(tmp_path):
    def write_file(text):
        path = tmp_path / "words.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write_file


def rng(_=""):
    return np.random.default_rng(0)


def make(own, rows=ROWS, *, is_pair=False):
    return {
        probe.name: probe
        for probe in make_probes(rows, rng, 9, is_pair=is_pair, own=own, english=False)
        if "your" in probe.name
    }


def test_sentences_are_filled(write):
    probe = make(read_probes(write(GERMAN)))["Namen, your sentences"]
    groups = [{"Heike", "Katrin"}, {"Fatma", "Zeynep"}]
    assert len(probe.trials) == 8  # two sentences, four fillings
    for trial in probe.trials:
        (before,), (after,) = trial.before, trial.after
        (home,) = (group for group in groups if any(word in before for word in group))
        assert not any(word in after for word in home)
        assert trial.neutral[0] == trial.before
        assert any(word in trial.neutral[1][0] for word in home)  # of the same group
        assert trial.neutral[1] != trial.before
    assert {trial.source for trial in probe.trials} == {0, 1}
    second = probe.trials[-1].before[0]
    assert second.startswith("Am ")  # a sentence begins with a capital
    assert second.endswith(" an {und} {ging}.")  # other braces are the user's


def test_words_in_rows_whole_and_without_english_articles(write):
    found = make(read_probes(write(GERMAN)))
    by_row = {trial.source: trial for trial in found["Namen, your words in rows"].trials}
    assert by_row.keys() == {0, 2}
    after = by_row[0].after[0]
    assert after in {f"{word} und {word} wohnen in Bonn." for word in ("Fatma", "Zeynep")}
    assert by_row[0].neutral == (ROWS[0], ("Katrin und Katrin wohnen in Bonn.",))
    first, second, third = by_row[2].after[0].split(", ")
    assert (first.split()[0], second.split()[0], third) == ("a", "an", "Fatmas")
    (place,) = found["Orte, your words in rows"].trials
    one, other = (text for (text,) in place.neutral)
    assert one.split(": ")[1] == other.split(": ")[1] == ROWS[0][0]
    assert one != other


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("neutral = [", "words.toml is not valid TOML"),
        ("", "words.toml: probes must be set"),
        ("probes = {}", "there is no [probes.NAME] in it"),
        ("[probes.x]", "probes.x: words must be set"),
        ("[probes.x]\nwords = ['a', 'b']\nsentence = ['{word}']", "did you mean 'sentences'?"),
        ("[probes.x]\nwords = ['a']", "should be two groups or more"),
        ("[probes.x]\nwords = [['a'], []]", "should be two groups or more"),
        ("[probes.x]\nwords = ['a', 'a']", "no word should be empty or occur twice"),
        ("[probes.x]\nwords = 'ab'", "should be a list"),
        ("[probes.x]\nwords = ['a', 'b']\nsentences = ['c']", "there is no {word} in 'c'"),
        ("[probes.x]\nwords = ['a', 'b']\npairs = [['{word}']]", "probes.x.pairs.0.1"),
        ("[probes.x]\nwords = ['a', 'b']\nsentences = ['{word} {neutral}']", "are no words"),
        ("neutral = ['a']\n[probes.x]\nwords = ['a', 'b']", "two different words or more"),
        ("neutral = ['a', ' ']\n[probes.x]\nwords = ['a', 'b']", "two different words or more"),
    ],
)
def test_a_file_that_says_something_else(write, text, told):
    with pytest.raises(UsageError) as caught:
        read_probes(write(text))
    assert told in str(caught.value)
    assert "words.toml" in str(caught.value)


def test_an_audit_without_english(tiny_run, write):
    own = read_probes(write(GERMAN))
    rows = {
        "mood": [("Heike war da, sehr gut.",)] * 12,
        "near": [("Heike kocht", "Es regnet")] * 12,
    }
    card = audit(load(tiny_run), rows, tasks=["mood", "near"], own=own, english=False)
    names = {result.probe for result in card.results}
    assert {"Namen, your sentences", "Namen, your words in rows", "typing slips"} <= names
    assert "texts in the other order" in names
    assert not any("own sentences" in name or "'not'" in name for name in names)
    assert not any("words change places" in name for name in names)
    assert (card.settings["english"], card.settings["own"]) == (False, ["Namen", "Orte"])
    both = audit(load(tiny_run), rows, tasks=["mood"], own=own)
    assert {"Namen, your sentences", "gendered words, own sentences"} <= {
        result.probe for result in both.results
    }
