"""`plait explain`: the answer, its words, and kind refusals."""

from __future__ import annotations

import json

import pytest

from plait import explain, load


def test_the_words_of_an_answer(plait, trained):
    done = plait("explain", trained, "--task", "mood", "a good day")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("mood: ")
    assert "  a good day\n" in done.out
    assert "with all words and" in done.out
    lines = [line for line in done.out.splitlines() if line[2:3] in ("+", "-")]
    assert sorted(line.split()[1] for line in lines) == ["a", "day", "good"]


def test_the_rest_is_summed_up(plait, trained):
    done = plait("explain", trained, "--task", "mood", "one two three four five", "--top", 2)
    assert "  3 more together" in done.out


def test_a_pair_says_which_text(plait, trained):
    done = plait("explain", trained, "--task", "same", "a cat", "a dog")
    assert done.code == 0, done.err
    assert "cat (text 1)" in done.out
    assert "dog (text 2)" in done.out


def test_json(plait, trained):
    words = ["explain", trained, "--task", "mood", "a good day", "--json", "--method", "occlusion"]
    found = json.loads(plait(*words).out)
    assert found["method"] == "occlusion"
    assert [part["text"] for part in found["parts"]] == ["a", "good", "day"]
    assert found["explained"] == found["answer"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--task", "mood", "a", "b"], "takes one text an example, not 2"),
        (["--task", "moo", "a"], "did you mean 'mood'"),
        (["--task", "mood", "a", "--label", "goof"], "did you mean 'good'"),
        (["a", "b"], "say which task with --task"),
        (["a", "b", "c"], "say which task"),
    ],
)
def test_what_is_refused(plait, trained, words, told):
    assert told in plait("explain", trained, *words).complaint()


def test_effects_add_up_to_what_predicting_says(trained):
    model, text = load(trained), "the film was great and the book was awful on some days"
    found = explain(model, "mood", text)
    (expected,) = model.predict("mood", [text])
    assert found.prediction.label == expected.label
    assert found.prediction.probabilities == pytest.approx(expected.probabilities, abs=1e-5)
    assert sum(p.effect for p in found.parts) == pytest.approx(found.value - found.bare, abs=1e-5)
    assert any(abs(part.effect) > 1e-4 for part in found.parts)
