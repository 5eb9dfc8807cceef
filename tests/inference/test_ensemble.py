"""Ensembles: answers combined by hand, folders, and what members must share."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import plait
from plait.config import read_recipe, to_toml
from plait.errors import RunError
from plait.inference.ensemble import Ensemble, load, make_ensemble
from plait.inference.predictor import Predictor

TEXTS = ["the film was great .", "dull", "a b c", "the book was fine ."]
PAIRS = [(one, other) for one in TEXTS for other in TEXTS[:2]]
EXAMPLES = {"mood": TEXTS, "same": PAIRS, "near": PAIRS}


@pytest.fixture(scope="module")
def second_run(train_once):
    """The tiny recipe under another seed and with shorter inputs."""
    return train_once("seed=3", "encoder.max_length=12", "train.epochs=1")


def altered(run, out, old, new):
    """Copy a run with another recipe."""
    shutil.copytree(run, out)
    recipe = to_toml(read_recipe(out / "recipe.toml"))
    assert old in recipe
    (out / "recipe.toml").write_text(recipe.replace(old, new), encoding="utf-8")
    return out


# --- an ensemble is used like a run ------------------------------------------------------


@pytest.mark.parametrize("how", ["mode", "mean"])
def test_one_member_is_its_member(tiny_run, tmp_path, how):
    folder = make_ensemble([tiny_run], tmp_path / "one", how)
    ensemble, alone = plait.load(folder, device="cpu"), Predictor.load(tiny_run, device="cpu")
    assert isinstance(ensemble, Ensemble)
    for task, examples in EXAMPLES.items():
        assert ensemble.predict(task, examples) == alone.predict(task, examples)
    assert ensemble.evaluate("dev").to_json() == alone.evaluate("dev").to_json()


@pytest.mark.parametrize("how", ["mode", "mean"])
def test_two_members_each_with_its_own_reading(tiny_run, second_run, tmp_path, how):
    ensemble = plait.load(make_ensemble([tiny_run, second_run], tmp_path / "two", how))
    members = [Predictor.load(run) for run in (tiny_run, second_run)]
    for task, examples in EXAMPLES.items():
        rows = [(e,) if isinstance(e, str) else e for e in examples]
        expected = ensemble.tasks[task].spec.kind.combine(
            np.stack([m.answer(task, m.tokenise(rows)) for m in members]), how
        )
        found = ensemble.predict(task, examples)
        values = [p.probabilities or p.value for p in found]
        assert np.array(values) == pytest.approx(expected)
    dev = ensemble.load_split("dev")
    assert {len(view) for view in dev["mood"].views} == {18}
    assert dev["mood"].views[0] is not dev["mood"].views[1]  # 32 tokens and 12
    raw = np.stack([m.answer("near", m.load_split("dev")["near"]) for m in members])
    assert ensemble.answer("near", dev["near"]) == pytest.approx(
        ensemble.tasks["near"].spec.kind.combine(raw, how)
    )
    assert ensemble.evaluate("dev").tasks["mood"].num_examples == 18


def test_tasks_answered_together_are_those_answered_apart(tiny_run, second_run, tmp_path):
    model = plait.load(make_ensemble([tiny_run, second_run], tmp_path / "both"))
    rows = model.tokenise([("the film was great .", "sad"), ("fine", "the walk was fine .")])
    for task, answers in model.answer_together(["near", "same"], rows).items():
        assert np.array_equal(answers, model.answer(task, rows))
    assert model.share_passes(["mood", "same", "near"]) == [("mood",), ("same",), ("near",)]


# --- the folder --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"so-so"', '"meh"', r"task 'mood' has labels .*'meh'.* in .*other, but .*'so-so'"),
        ("5.0", "4.0", r"task 'near' has range \[0.0, 4.0\] in .*other, but \[0.0, 5.0\]"),
        ("[tasks.same", "[tasks.alike", "has a task 'same' and .*other does not"),
    ],
)
def test_other_tasks_are_refused(tiny_run, tmp_path, old, new, told):
    other = altered(tiny_run, tmp_path / "other", old, new)
    with pytest.raises(RunError, match=told):
        make_ensemble([tiny_run, other], tmp_path / "e")
    assert not (tmp_path / "e").exists()


def test_what_is_no_member_is_refused(tiny_run, tmp_path):
    with pytest.raises(RunError, match="there is no run at nowhere"):
        make_ensemble([tiny_run, "nowhere"], tmp_path / "e")
    with pytest.raises(RunError, match="is named twice; each member can be named once"):
        make_ensemble([tiny_run, tiny_run / "." / ".." / tiny_run.name], tmp_path / "e")
    with pytest.raises(RunError, match="at least one member"):
        make_ensemble([], tmp_path / "e")
    whole = make_ensemble([tiny_run], tmp_path / "e")
    with pytest.raises(RunError, match="is an ensemble; name its members instead"):
        make_ensemble([tiny_run, whole], tmp_path / "f")
    with pytest.raises(RunError, match="exists already and is not overwritten"):
        make_ensemble([tiny_run], whole)
    unfinished = shutil.copytree(tiny_run, tmp_path / "unfinished")
    for name in ("model.safetensors", "scores.json"):
        (unfinished / name).unlink()
    with pytest.raises(RunError, match="unfinished has no model yet"):
        make_ensemble([unfinished], tmp_path / "f")


def test_a_member_that_went_away_or_changed_is_told(tiny_run, tmp_path):
    member = shutil.copytree(tiny_run, tmp_path / "member")
    folder = make_ensemble([tiny_run, member], tmp_path / "e")
    recipe = (member / "recipe.toml").read_text(encoding="utf-8")
    (member / "recipe.toml").write_text(recipe.replace('"so-so"', '"meh"'), encoding="utf-8")
    with pytest.raises(RunError, match=r"'mood' has labels .* members must agree"):
        load(folder)
    shutil.rmtree(member)
    with pytest.raises(
        RunError, match=r"ensemble.toml names the member .*member, which does not exist"
    ):
        load(folder)
