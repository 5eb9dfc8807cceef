"""`plait train-all`: several recipes, each into its own folder, and never twice."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec

import pytest


@pytest.fixture
def recipes(tiny_recipe):
    """Two recipes that differ in their seeds."""
    first = tiny_recipe()
    second = first.with_name("second.toml")
    second.write_text('extends = "recipe.toml"\nname = "second"\nseed = 8\n')
    return first, second


def test_each_recipe_has_a_run_and_finished_ones_are_passed_over(plait, recipes, tmp_path):
    words = ["train-all", *recipes, "--out", tmp_path / "runs", "--jobs", 2]
    done = plait(*words)
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["run", "mood", "same", "near", "overall"]
    assert [line[0] for line in lines[1:3]] == ["tiny", "second"]
    alone = plait("train", recipes[1], "--out", tmp_path / "alone")
    assert alone.code == 0, alone.err

    def read(run):
        return json.loads((run / "scores.json").read_text())["dev"]

    assert read(tmp_path / "runs" / "second") == read(tmp_path / "alone")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("*/scores.json")}
    again = plait(*words)
    assert again.code == 0
    assert again.out == done.out
    assert {p: p.stat().st_mtime_ns for p in before} == before
    other = plait(*words, "-o", "train.lr=1e-5")
    assert other.code == 2
    assert "was trained with another recipe (train.lr" in other.complaint()


def test_one_that_fails_does_not_end_the_others(plait, recipes, tmp_path):
    recipes[0].with_name("mood-dev.csv").write_text("id,text,label\nm0,the film .,nothing\n")
    good = recipes[1]
    good.write_text(
        'extends = "recipe.toml"\nname = "good"\n[tasks.mood]\ndev = "mood-train.csv"\n'
    )
    done = plait("train-all", recipes[0], good, "--out", tmp_path / "runs")
    assert done.code == 2
    assert (tmp_path / "runs" / "good" / "scores.json").exists()
    assert "1 could not be trained: tiny" in done.err
    assert "nothing" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train-all", "demo", "demo"], "would be in the same folder"),
        (["train-all", "d/ensemble"], "lists members"),
        (["train-all", "demo", "--gpus-per-run", "0.5"], "--gpus-per-run is for Ray"),
        (["train-all", "demo", "--engine", "ray", "--address", "127.0.0.1:1"], "nothing answers"),
        (["predict", "RUN", "--engine", "ray"], "give a pattern with --input"),
        (["predict", "RUN", "--input", "*.csv"], "name one with --output DIR"),
        (["predict", "RUN", "--input", "*.csv", "--output", "a.csv"], "should be a folder"),
        (
            ["predict", "RUN", "--input", "*.csv", "--output", "a", "--review", "b.csv"],
            "--review is for one file",
        ),
        (["predict", "RUN", "--input", "*.nothing", "--output", "a"], "no file is called"),
        (["predict", "RUN", "a text", "--engine", "ray"], "not both"),
        (["predict", "RUN", "--input", "."], "is a folder: name its files"),
    ],
)
def test_what_does_not_go_together_is_refused(plait, trained, tmp_path, monkeypatch, words, said):
    if "ray" in words and find_spec("ray") is None:
        pytest.skip("Ray is not installed (pip install 'plait[ray]')")
    monkeypatch.chdir(tmp_path)
    words = [trained if word == "RUN" else word for word in words]
    extra = ["--out", tmp_path / "runs"] if words[0] == "train-all" else []
    done = plait(*words, *extra)
    assert done.code == 2
    assert said in done.complaint()
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("command", ["search", "compare", "train-all", "predict"])
def test_without_ray_it_says_what_to_install(plait, monkeypatch, tmp_path, trained, command):
    monkeypatch.setitem(sys.modules, "ray", None)
    words = {
        "search": ["demo", "--out", tmp_path / "x"],
        "compare": ["demo", "--out", tmp_path / "x"],
        "train-all": ["demo", "--out", tmp_path / "x"],
        "predict": [trained, "--input", "*.csv", "--output", tmp_path / "x"],
    }
    done = plait(command, *words[command], "--engine", "ray")
    assert done.code == 2
    assert done.complaint() == "--engine ray needs Ray (pip install 'plait[ray]')"


def test_a_pattern_is_read_as_told(plait, trained, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("key|text\nk|the film, it was great .\n")
    words = ["predict", trained, "--task", "mood", "--output", tmp_path / "out"]
    done = plait(*words, "--input", tmp_path / "*.csv", "--separator", "|")
    assert done.code == 0, done.err
    for path in (tmp_path / "out").glob("part-*.csv"):
        assert '"the film, it was great ."' in path.read_text()


def test_a_pattern_is_answered_into_a_folder_and_gone_on_with(plait, trained, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text("key,text\nk,the film was great .\n")
    words = ["predict", trained, "--task", "mood", "--output", tmp_path / "out"]
    words += ["--input", tmp_path / "*.csv", "--threshold", "0.99"]
    done = plait(*words)
    assert done.code == 0, done.err
    assert "mood: 2 of 2 rows are for review" in done.err
    assert "2 rows of 2 files are answered" in done.err
    assert len(list((tmp_path / "out").glob("part-*.csv"))) == 2
    assert "go on there with --resume" in plait(*words).complaint()
    assert plait(*words, "--resume").code == 0


@pytest.mark.parametrize(
    ("pattern", "out", "more"),
    [
        ("rows/**", "rows/out", ()),
        ("**/*.csv", "out", ()),
        ("rows/*/*.csv", "rows/out", ("--resume",)),
        ("rows/new/[ap]*.csv", "rows/new", ()),
    ],
)
def test_answers_are_not_written_where_rows_are_looked_for(
    plait, trained, tmp_path, monkeypatch, pattern, out, more
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows" / "new").mkdir(parents=True)
    (tmp_path / "rows" / "new" / "a.csv").write_text("text\nfine\n")
    words = ["predict", trained, "--task", "mood", "--input", pattern]
    told = plait(*words, "--output", out, *more).complaint()
    assert told == (
        f"answers in {out} would be rows to {pattern} the next time; choose a folder that the "
        "pattern does not reach"
    )
    assert not list((tmp_path / out).glob("part-*"))
    assert plait(*words, "--output", tmp_path / "rows" / "_answers").code == 0  # passed over
