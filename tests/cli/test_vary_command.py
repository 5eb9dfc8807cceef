"""`plait vary`: a file of rows with other words, and a student whose teacher answers them."""

from __future__ import annotations

import json

import pytest

from csv_rows import read_rows


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe()


@pytest.mark.parametrize(("task", "columns"), [("mood", ["text"]), ("same", ["a", "b"])])
def test_from_a_recipe_to_a_student(plait, recipe, tmp_path, task, columns):
    out = tmp_path / "varied.csv"
    done = plait("vary", recipe, "--task", task, "--count", "40", "--out", out)
    assert done.code == 0, done.err
    rows = read_rows(out)
    assert (list(rows[0]), len(rows)) == (columns, 40)
    assert done.out.startswith("40 rows made of ")
    told = done.out.splitlines()[1].removeprefix("To train on them: ").partition(" in [tasks.")[0]
    key, _, value = told.partition(" = ")

    teacher = tmp_path / "teacher"
    assert plait("train", recipe, "--out", teacher).code == 0
    kind = f"stage.distill.kind={{name='distill', teacher='{teacher}'}}"
    overrides = ["-o", "stages=['distill']", "-o", kind, "-o", f"tasks.{task}.{key}={value}"]
    done = plait("train", recipe, "--out", tmp_path / "student", *overrides)
    assert done.code == 0, done.err
    facts = json.loads((tmp_path / "student" / "run.json").read_text())["data"]
    assert facts["unlabelled"][task]["rows"] == 40


def test_more_than_can_be_made_is_told(plait, recipe, tmp_path):
    words = ["--task", "mood", "--count", "9000", "--neighbours", "1"]
    done = plait("vary", recipe, *words, "--out", tmp_path / "v.csv")
    assert done.code == 0, done.err
    count = len(read_rows(tmp_path / "v.csv"))
    assert f"there is no more to be made of them than {count:,} rows" in done.out + done.err


def test_a_test_file_that_is_not_there_is_told(plait, recipe, tmp_path):
    """Nobody can say which texts it has."""
    gone = ["-o", "tasks.near.test='gone.csv'"]
    done = plait("vary", recipe, "--task", "same", "--out", tmp_path / "v.csv", *gone)
    assert done.code == 0, done.err
    assert "gone.csv is not there, so its texts cannot be left out" in done.out + done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--task must say whose texts to vary (mood, same, near)"),
        (["--task", "moot"], "--task 'moot' is no task of tiny; did you mean 'mood'?"),
        (["--task", "mood", "--share", "2"], "--share"),
        (["--task", "mood", "-o", "tasks.mood.train='gone.csv'"], "gone.csv"),
    ],
)
def test_what_cannot_be(plait, recipe, tmp_path, words, told):
    done = plait("vary", recipe, "--out", tmp_path / "v.csv", *words)
    assert done.code == 2
    assert told in done.complaint()
    assert not (tmp_path / "v.csv").exists()


def test_a_file_that_is_there_stays(plait, recipe, tmp_path):
    (tmp_path / "v.csv").write_text("mine")
    done = plait("vary", recipe, "--task", "same", "--out", tmp_path / "v.csv")
    assert "exists already and is not overwritten" in done.complaint()
