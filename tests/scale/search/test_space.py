"""A written space: what is refused before any trial, and what is drawn from it."""

from __future__ import annotations

import tomllib

import pytest

from plait.config import SearchConfig
from plait.errors import PlaitError
from plait.scale.search import Search, find_runs
from plait.scale.search.space import (
    find_distributions,
    read_settings,
    show,
    spell_teachers,
    write_override,
)


def write(folder, text):
    path = folder / "space.toml"
    path.write_text(f"[search.space]\n{text}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"train.lrr" = {low = 1e-5, high = 1e-4}', r"train\.lrr is not a setting; .*'lr'"),
        ('"trian.lr" = {low = 1e-5, high = 1e-4}', r"trian is not a setting; .*'train'"),
        ('"train.lr" = {low = 1e-4, high = 1e-5}', "low = 0.0001 should be below high"),
        ('"train.lr" = {low = 0.0, high = 1.0, log = true}', "log = true needs low above 0"),
        ('"train.lr" = {low = 1e-5}', "needs values, or low and high"),
        ('"train.lr" = {values = [1e-5], low = 1e-6}', "not both"),
        ('"train.lr" = {values = []}', "at least 1"),
        ('"train.lr" = {values = [2024-01-01]}', "values should be numbers, words"),
        ('"train.lr" = {values = [1e-5, nan]}', "values should be numbers, words"),
        ('"train.lr" = {lo = 1e-5, high = 1e-4}', r"lo is not a setting; .*'log|low'"),
        ('"train.lr" = {low = -1e-5, high = 1e-4}', r"\"train.lr\" = -1e-05: .*greater than 0"),
        ('"train.batch_size" = {low = 1.5, high = 8}', r"\"train.batch_size\" = 1.5: .*integer"),
        ('"train.epochs" = {low = 1, high = 8, step = 0.5}', "step = 0.5 should be whole"),
        ('"train.aggregator" = {values = ["sum", "pcgrid"]}', "no aggregator 'pcgrid'.*'pcgrad'"),
        ('"train.aggregator.bta" = {values = [1]}', "bta is not a setting of aggregator"),
        ('"tasks.mood.loss" = {values = ["mse"]}', "mse"),
        ('"seed" = {low = 1, high = 9}', "best by chance"),
        ('"select" = {values = ["sum", "mean"]}', "cannot be compared"),
        (
            '"train.schedule" = {values = ["sequential"]}\n'
            '"train.schedule.length" = {values = [1]}',
            r"train\.schedule\.length is inside train\.schedule",
        ),
        ("train.lr = {low = 1e-5, high = 1e-4}", 'in quotes: "train.lr"'),
        ("", r"no \[search.space\]"),
    ],
)
def test_a_bad_space_is_refused_before_any_trial(tiny_recipe, tmp_path, text, words):
    search = Search(str(tiny_recipe()), tmp_path / "out", (str(write(tmp_path, text)),))
    with pytest.raises(PlaitError, match=words):
        search.read_config()
    assert not search.out.exists()


@pytest.mark.parametrize(
    ("given", "spelt"),
    [
        ("runs/a", "runs/a"),
        ("./runs/a/", "runs/a"),
        ("{}/b/../runs/a", "runs/a"),
        ("/elsewhere/a", "/elsewhere/a"),
        ("", ""),
    ],
)
def test_a_teacher_is_spelled_one_way(tmp_path, monkeypatch, given, spelt):
    monkeypatch.chdir(tmp_path)
    place = given.format(tmp_path)
    kinds = ({"name": "distill", "teacher": place}, "finetune")
    space = {
        "train.kind": {"values": kinds},
        "stage.last.kind.teacher": {"values": [place, spelt]},
        "train.lr": {"low": 0.1, "high": 0.2},
    }
    found = spell_teachers(SearchConfig.model_validate({"space": space})).space
    assert found["train.kind"].values == ({"name": "distill", "teacher": spelt}, "finetune")
    assert found["stage.last.kind.teacher"].values == (spelt,)
    assert found["train.lr"].low == 0.1


def test_a_recipe_brings_its_space_along(tiny_recipe, tmp_path):
    recipe = tiny_recipe()
    with recipe.open("a", encoding="utf-8") as file:
        file.write('[search.space]\n"train.lr" = {low = 1e-5, high = 1e-4, log = true}\n')
    config = Search(str(recipe), tmp_path / "out").read_config()
    assert list(config.search.space) == ["train.lr"]
    assert Search(str(recipe), tmp_path / "out").trial_config({"train.lr": 2e-5}).train.lr == 2e-5


def test_without_dev_there_must_be_a_holdout(tiny_recipe, tmp_path):
    space = write(tmp_path, '"train.lr" = {low = 1e-5, high = 1e-4}')
    none = tuple(f"tasks.{task}.dev=[]" for task in ("mood", "same", "near"))
    search = Search(str(tiny_recipe()), tmp_path / "out", (*none, str(space)))
    with pytest.raises(PlaitError, match="--holdout"):
        search.read_config()


def test_what_is_drawn_becomes_settings(tmp_path):
    text = """
    "a.float" = {low = 1e-5, high = 1e-1, log = true}
    "a.int" = {low = 8, high = 32, step = 8}
    "a.part" = {values = ["sum", {name = "gradvac", beta = 0.5}, [1, 2], true]}
    """
    optuna = pytest.importorskip("optuna")
    space = SearchConfig.model_validate(
        tomllib.loads(write(tmp_path, text).read_text())["search"]
    ).space
    found = find_distributions(space)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    seen = [read_settings(space, study.ask(found).params) for _ in range(60)]
    assert all(1e-5 <= s["a.float"] <= 1e-1 for s in seen)
    assert 10 < sum(s["a.float"] < 1e-3 for s in seen) < 50  # half of the way, by its logarithm
    assert {s["a.int"] for s in seen} == {8, 16, 24, 32}
    parts = [s["a.part"] for s in seen]
    for value in ("sum", {"name": "gradvac", "beta": 0.5}, [1, 2], True):
        assert value in parts


@pytest.mark.parametrize(
    "value", [1, 2.5e-5, True, "sum", 'a "word"\\', [1, 2], {"name": "x", "beta": 0.1, "at": {}}]
)
def test_values_are_written_as_overrides_are_read(value):
    from plait.config.tables import override

    table = {}
    override(table, write_override("a.b", value))
    assert table == {"a": {"b": value}}
    assert "\n" not in show(value)


def test_a_share_becomes_one_in_so_many():
    assert find_runs(None, 0.1) == (10, 1)
    assert find_runs(None, 0.5) == (2, 1)
    assert find_runs(5, None) == (5, 5)
    assert find_runs(None, None) == (None, 1)
    for folds, holdout in ((1, None), (None, 0.0), (None, 0.6), (3, 0.1)):
        with pytest.raises(PlaitError):
            find_runs(folds, holdout)
