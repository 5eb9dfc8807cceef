"""Recipes that list members: what they say, and what becomes of them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest
import tomli_w

import plait
from csv_rows import read_rows, write_rows
from plait.config import lists_members, read_ensemble, read_recipe
from plait.errors import RecipeError, RunError
from plait.inference.fitting import calibrate as fitting
from plait.inference.fitting.calibrate import calibrate
from plait.training.listeners import Listener
from plait.training.runs import train_ensemble


@pytest.fixture
def write(tiny_recipe):
    """Factory: write a recipe that lists members beside the tiny recipe; return its path."""
    folder = tiny_recipe().parent

    def make(*, name="both", members=("recipe.toml",), more=None, **settings):
        table = {"name": name, "ensemble": {"members": list(members), **settings}, **(more or {})}
        path = folder / f"{name}.toml"
        path.write_text(tomli_w.dumps(table), encoding="utf-8")
        return path

    return make


@pytest.fixture
def second(tiny_recipe):
    """Write another recipe beside the tiny one, which differs as it is told; return its name."""

    def make(text, name="second"):
        path = tiny_recipe().with_name(f"{name}.toml")
        path.write_text(f"extends = 'recipe.toml'\nname = '{name}'\n{text}\n", encoding="utf-8")
        return path.name

    return make


# --- reading -----------------------------------------------------------------------------


def test_members_are_read_beside_the_recipe(write, second):
    path = write(members=["recipe.toml", second("train.lr = 1e-4")])
    config = read_ensemble(path)
    assert lists_members(path)
    assert not lists_members(path.with_name("recipe.toml"))
    assert list(config.members) == ["tiny", "second"]
    assert config.members["tiny"] == read_recipe(path.with_name("recipe.toml"))
    assert config.members["second"].train.lr == 1e-4
    assert (config.name, config.how) == ("both", "mode")


def test_every_member_without_every_part(write, second):
    config = read_ensemble(write(members=["recipe.toml", second("")], folds=2, seeds=[4]))
    assert {name: member.data.deal() for name, member in config.members.items()} == {
        "tiny-seed-4-fold-1": (1, 2),
        "tiny-seed-4-fold-2": (2, 2),
        "second-seed-4-fold-1": (1, 2),
        "second-seed-4-fold-2": (2, 2),
    }
    for member in config.members.values():
        assert member.data.leave_out
        assert member.data.root == config.members["tiny-seed-4-fold-1"].data.root
        assert member.seed == 4
    assert list(read_ensemble(write(folds=2)).members) == ["tiny-fold-1", "tiny-fold-2"]


def test_every_member_under_every_seed(write, second):
    config = read_ensemble(write(members=["recipe.toml", second("")], seeds=[1, 2]))
    assert {name: member.seed for name, member in config.members.items()} == {
        "tiny-seed-1": 1,
        "tiny-seed-2": 2,
        "second-seed-1": 1,
        "second-seed-2": 2,
    }


def test_what_is_laid_over_the_members(write, second):
    path = write(
        members=["recipe.toml", second("train.lr = 1e-4\ntrain.epochs = 9")],
        more={"train": {"epochs": 5, "batch_size": 7}},
    )
    config = read_ensemble(path, ["train.batch_size=3", "ensemble.how=mean", "seed=5"])
    assert config.how == "mean"
    for member in config.members.values():
        assert (member.train.epochs, member.train.batch_size, member.seed) == (5, 3, 5)
    assert [member.train.lr for member in config.members.values()] == [3e-3, 1e-4]


BAD = {
    "twice": ({"members": ["recipe.toml", "recipe.toml"]}, [], "two members are called 'tiny'"),
    "none": ({"members": []}, [], r"ensemble\.members = \(\)"),
    "unknown": ({"members": ["a/baselin"]}, [], "there is no recipe 'a/baselin'; did you mean"),
    "how": ({"how": "median"}, [], r"ensemble\.how = 'median'"),
    "calibrate": ({"calibrate": "offsets"}, [], "calibrate needs members that leave rows out"),
    "calibrated how": ({"folds": 2, "calibrate": "much"}, [], r"ensemble\.calibrate = 'much'"),
    "key": ({"seed": [1]}, [], r"ensemble\.seed is not a setting; did you mean 'seeds'"),
    "its own": ({}, ["train.lrr=1"], r"recipe\.toml: train\.lrr is not a setting"),
    "seeds and a seed": ({"seeds": [1, 2]}, ["seed=3"], r"-o 'ensemble\.seeds=\[\.\.\.\]'"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_told(write, case):
    settings, overrides, words = BAD[case]
    with pytest.raises(RecipeError, match=words):
        read_ensemble(write(**settings), overrides)


def test_other_doors_send_it_back(write):
    path = write()
    with pytest.raises(RecipeError, match="lists the members of an ensemble"):
        plait.read_recipe(path)
    with pytest.raises(RecipeError, match="lists no members"):
        read_ensemble(path.with_name("recipe.toml"))


# --- training ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tiny_run, tmp_path_factory):
    """An ensemble of two seeds, and its recipe; saved after every other update."""
    folder = tmp_path_factory.mktemp("members")
    recipe = tiny_run.parent / "tiny" / "seeds.toml"
    table = {"members": ["recipe.toml"], "seeds": [1, 2], "how": "mean"}
    recipe.write_text(tomli_w.dumps({"name": "both", "ensemble": table}), encoding="utf-8")
    config = read_ensemble(recipe, ["save_every=2", "train.epochs=1"])
    return config, train_ensemble(config, folder / "out")


@pytest.fixture
def folds(folds_run, tiny_run, tmp_path):
    """The recipe of the ensemble of folds, and a copy of it."""
    config = read_ensemble(tiny_run.parent / "tiny" / "folds.toml")
    return config, shutil.copytree(folds_run, tmp_path / "folds")


def test_members_are_trained_and_their_ensemble_scored(trained):
    _, outcome = trained
    model = plait.load(outcome.folder)
    assert isinstance(model, plait.Ensemble)
    places = [outcome.folder / "members" / name for name in ("tiny-seed-1", "tiny-seed-2")]
    assert [member.folder.resolve() for member in model.members] == [p.resolve() for p in places]
    assert outcome.result["dev"] == model.evaluate("dev").to_json()
    assert json.loads((outcome.folder / "scores.json").read_text()) == outcome.result
    own = [json.loads((place / "scores.json").read_text()) for place in places]
    primary = [m["primary"] for m in outcome.result["members"].values()]
    assert primary == [scores["dev"]["primary"] for scores in own]
    assert outcome.result["baseline"] == own[0]["baseline"]
    assert outcome.result["seconds"] == pytest.approx(sum(s["seconds"] for s in own), abs=0.06)


def test_an_ensemble_moves_and_has_the_baselines_of_its_first_member(trained, tmp_path):
    config, outcome = trained
    out = shutil.copytree(outcome.folder, tmp_path / "moved")
    answers = [
        plait.load(at).predict("mood", ["the film was great ."]) for at in (out, outcome.folder)
    ]
    assert answers[0] == answers[1]
    scores = out / "members" / "tiny-seed-1" / "scores.json"
    result = json.loads(scores.read_text())
    for baselines in ({"baselines": {"mood": {"a regression": 0.9}}}, {}):
        result.pop("baselines", None)
        scores.write_text(json.dumps(result | baselines))
        again = train_ensemble(config, out, resume=True).result
        assert again.get("baselines") == baselines.get("baselines")
        assert again["baseline"] == outcome.result["baseline"]


def test_members_are_calibrated_on_what_they_left_out(folds, folds_run, tmp_path):
    """As by hand afterwards, and dev is scored so."""
    config, byhand = folds
    calibrate(byhand, left_out=True, offsets=True)
    out = shutil.copytree(folds_run, tmp_path / "out")
    scaled = replace(config, calibrate="offsets")
    outcome = train_ensemble(scaled, out, resume=True)
    model, wanted = plait.load(out), plait.load(byhand)
    for member, like in zip(model.members, wanted.members, strict=True):
        assert member.scalings["mood"].offsets
        assert member.scalings == like.scalings
    assert outcome.result["dev"] == wanted.evaluate("dev").to_json()
    assert train_ensemble(scaled, out, resume=True).result == outcome.result
    plain = replace(config, calibrate="temperatures")
    model = plait.load(train_ensemble(plain, out, resume=True).folder)
    assert all(not member.scalings["mood"].offsets for member in model.members)


def test_what_cannot_be_calibrated_is_told_and_nothing_is_lost(write, tmp_path):
    path = write(folds=2, how="mean", calibrate="offsets")
    for task in ("mood", "same"):  # all of one label, which is answered right
        rows = read_rows(path.parent / f"{task}-train.csv")
        label = rows[0]["label"]
        write_rows(path.parent / f"{task}-train.csv", [{**row, "label": label} for row in rows])
    told = []
    outcome = train_ensemble(read_ensemble(path), tmp_path / "out", note=told.append)
    for name in ("tiny-fold-1", "tiny-fold-2"):
        assert any(text.startswith(f"{name}, not calibrated: ") for text in told)
    assert outcome.result["calibrated"] == {"tiny-fold-1": [], "tiny-fold-2": []}
    assert outcome.result["dev"]["primary"].keys() == {"mood", "same", "near"}


def test_one_member_that_cannot_be_does_not_stop_the_others(folds, monkeypatch):
    choose = fitting._choose

    def fail(folder, *args):
        return ({}, "no rows") if folder.name.endswith("-2") else choose(folder, *args)

    monkeypatch.setattr(fitting, "_choose", fail)
    told = []
    config, out = folds
    scaled = replace(config, calibrate="offsets")
    outcome = train_ensemble(scaled, out, resume=True, note=told.append)
    assert "tiny-fold-2, not calibrated: no rows" in told
    assert list(outcome.result["calibrated"].values()) == [["mood", "same"], []]


def deal_in_two(folder, *tasks):
    """Let all training rows of tasks but the first belong together; say so in settings."""
    for task in tasks:
        rows = read_rows(folder / f"{task}-train.csv")
        lots = ["b", *["a"] * (len(rows) - 1)]  # in different folds of three
        named = [{**row, "lot": lot} for row, lot in zip(rows, lots, strict=True)]
        write_rows(folder / f"{task}-train.csv", named)
    return [f"tasks.{task}.group='lot'" for task in tasks]


def test_a_task_with_hardly_a_row_left_out_is_left_as_it_is(write, tmp_path):
    """One member left all rows of a task but one out, another that one, and another none."""
    few = {"train": {"max_steps": 1}}
    path, told = write(folds=3, how="mean", calibrate="temperatures", more=few), []
    config = read_ensemble(path, deal_in_two(path.parent, "same"))
    outcome = train_ensemble(config, tmp_path / "out", note=told.append)
    assert sorted(outcome.result["calibrated"].values()) == [["mood"], ["mood"], ["mood", "same"]]
    assert sorted(text.partition(", ")[2] for text in told) == [
        "same skipped: it has 1 left-out row, too few right or wrong ones to fit a temperature",
        "same skipped: the run left out none of its rows",
    ]


def test_what_all_together_were_calibrated_by_goes_where_it_does_not_fit(folds):
    config, out = folds
    calibrate(out)
    scaled, told = replace(config, calibrate="offsets"), Heard()
    plait.train(scaled, out, resume=True, listeners=[told])
    assert any("because its members changed" in text for text in told.notes)
    assert not plait.load(out).scalings
    calibrate(out)
    plait.train(scaled, out, resume=True)
    assert plait.load(out).scalings  # the members are as they were


class Heard(Listener):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


class Crash(BaseException):
    """What no code of plait's catches, like a kill."""


class CrashAfter(Listener):
    def __init__(self, step):
        self.at = step

    def step(self, record):
        if record.total_steps == self.at:
            raise Crash


def test_finished_members_are_passed_over(trained, tmp_path):
    config, whole = trained
    heard = []

    def listen(name):
        heard.append(name)
        return [CrashAfter(7)] if name == "tiny-seed-2" and len(heard) == 2 else []

    with pytest.raises(Crash):
        train_ensemble(config, tmp_path / "broken", listen=listen)
    first = tmp_path / "broken" / "members" / "tiny-seed-1" / "model.safetensors"
    assert not (tmp_path / "broken" / "ensemble.toml").exists()
    before = first.stat().st_mtime_ns
    with pytest.raises(RunError, match="`again`"):
        train_ensemble(config, tmp_path / "broken", command="again")
    broken = train_ensemble(config, tmp_path / "broken", resume=True, listen=listen)
    assert first.stat().st_mtime_ns == before
    assert broken.result["dev"] == whole.result["dev"]
    for name in config.members:
        path = f"members/{name}/model.safetensors"
        assert (whole.folder / path).read_bytes() == (tmp_path / "broken" / path).read_bytes()
    assert train_ensemble(config, tmp_path / "broken", resume=True).result == broken.result


def test_members_that_do_not_fit_are_told_before_any_is_trained(write, second, tmp_path):
    path = write(members=["recipe.toml", second("tasks.near.range = [0, 6]")])
    with pytest.raises(RecipeError, match=r"both: task 'near' has range \[0\.0, 6\.0\] in second"):
        train_ensemble(read_ensemble(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()
