"""Ensembles: answers combined by hand, folders, and what members must share."""

from __future__ import annotations

import shutil
import tomllib

import numpy as np
import pytest

import plait
from plait.config import read_recipe, to_toml
from plait.errors import RunError, UsageError
from plait.inference.ensemble import FILE, Ensemble, Views, load, make_ensemble
from plait.inference.predictor import Predictor
from plait.training.run import train

TEXTS = ["the film was great .", "dull", "a b c", "the book was fine ."]
PAIRS = [(one, other) for one in TEXTS for other in TEXTS[:2]]
EXAMPLES = {"mood": TEXTS, "same": PAIRS, "near": PAIRS}


@pytest.fixture(scope="module")
def second_run(tmp_path_factory, tiny_run):
    """The recipe of tiny_run under another seed and with shorter inputs."""
    folder = tmp_path_factory.mktemp("second")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLAIT_CACHE", str(folder / "cache"))
        config = read_recipe(
            tiny_run / "recipe.toml", ["seed=3", "encoder.max_length=12", "train.epochs=1"]
        )
        return train(config, folder / "run").folder


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


def test_a_run_is_still_a_run(tiny_run):
    assert isinstance(load(tiny_run), Predictor)


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


def test_members_that_read_alike_share_what_is_read(tiny_run, tmp_path):
    twin = shutil.copytree(tiny_run, tmp_path / "twin")
    ensemble = Ensemble.load(make_ensemble([tiny_run, twin], tmp_path / "e"))
    data = ensemble.tokenise([("a",), ("b",)])
    assert isinstance(data, Views)
    assert data.views[0] is data.views[1]
    assert ensemble.predict("mood", TEXTS) == Predictor.load(tiny_run).predict("mood", TEXTS)


def test_progress_counts_rows_not_members(tiny_run, second_run, tmp_path):
    heard = []
    ensemble = Ensemble.load(make_ensemble([tiny_run, second_run], tmp_path / "e"))
    ensemble.watched(lambda *args: heard.append(args)).predict("mood", TEXTS)
    assert heard == [("mood", 2, 4), ("mood", 4, 4)]


def test_an_unknown_task(tiny_run, tmp_path):
    ensemble = load(make_ensemble([tiny_run], tmp_path / "e"))
    with pytest.raises(UsageError, match="e has no task 'moood'; did you mean 'mood'"):
        ensemble.predict("moood", TEXTS)


# --- the folder --------------------------------------------------------------------------


def test_the_file_names_members_as_seen_from_it(tiny_run, tmp_path):
    runs = tmp_path / "runs"
    shutil.copytree(tiny_run, runs / "a")
    shutil.copytree(tiny_run, runs / "b")
    make_ensemble([runs / "a", runs / "b"], runs / "ab", "mean")
    table = tomllib.loads((runs / "ab" / FILE).read_text(encoding="utf-8"))
    assert (table["how"], table["members"]) == ("mean", ["../a", "../b"])
    assert table["tasks"]["near"] == {"kind": "score", "num_texts": 2, "range": [0.0, 5.0]}
    assert table["tasks"]["same"]["labels"] == ["no", "yes"]
    moved = (runs).rename(tmp_path / "moved")
    assert len(Ensemble.load(moved / "ab").members) == 2


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"so-so"', '"meh"', r"task 'mood' has labels .*'meh'.* in .*other, but .*'so-so'"),
        ("5.0", "4.0", r"task 'near' has range \[0.0, 4.0\] in .*other, but \[0.0, 5.0\]"),
        ("[tasks.same", "[tasks.alike", "has a task 'same' and .*other has none"),
    ],
)
def test_other_tasks_are_refused(tiny_run, tmp_path, old, new, told):
    other = altered(tiny_run, tmp_path / "other", old, new)
    with pytest.raises(RunError, match=told):
        make_ensemble([tiny_run, other], tmp_path / "e")
    assert not (tmp_path / "e").exists()


def test_a_task_too_many_is_refused(tiny_run, tmp_path):
    more = '[tasks.more]\nkind = "binary"\ntext = ["text"]\n\n[tasks.same]'
    other = altered(tiny_run, tmp_path / "other", "[tasks.same]", more)
    with pytest.raises(RunError, match=r"other has a task 'more' and .* has none"):
        make_ensemble([tiny_run, other], tmp_path / "e")


def test_what_is_no_member_is_refused(tiny_run, tmp_path):
    with pytest.raises(RunError, match="there is no run at nowhere"):
        make_ensemble([tiny_run, "nowhere"], tmp_path / "e")
    with pytest.raises(RunError, match="is named twice; every member has one vote"):
        make_ensemble([tiny_run, tiny_run / "." / ".." / tiny_run.name], tmp_path / "e")
    with pytest.raises(RunError, match="at least one member"):
        make_ensemble([], tmp_path / "e")
    whole = make_ensemble([tiny_run], tmp_path / "e")
    with pytest.raises(RunError, match="is an ensemble itself; name its members instead"):
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
    with pytest.raises(RunError, match=r"'mood' has labels .* members share what their"):
        load(folder)
    shutil.rmtree(member)
    with pytest.raises(
        RunError, match=r"ensemble.toml names a member .*member, which is not there"
    ):
        load(folder)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("how = ", "is not an ensemble that plait wrote"),
        ("how = 'mode'", "it lacks 'members'"),
        ("how = 'mod'\nmembers = ['a']\ntasks = {}", "how = 'mod'; did you mean 'mode'"),
        ("how = 'mode'\nmembers = [1]\ntasks = {}", "is not an ensemble that plait wrote"),
        ("how = 'mode'\nmembers = ['a']\ntasks = {a = 1}", "is not an ensemble that plait wrote"),
        ("how = 'mode'\nmembers = []\ntasks = {}", "names no members"),
    ],
)
def test_a_damaged_file_is_told(tmp_path, text, told):
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=told):
        load(tmp_path)


def test_a_run_is_no_ensemble(tiny_run):
    with pytest.raises(RunError, match=r"is not an ensemble: it has no ensemble\.toml"):
        Ensemble.load(tiny_run)
