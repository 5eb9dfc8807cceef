"""`plait pairs`: a file of new pairs, and a student that its teacher answers them for."""

from __future__ import annotations

import json

import pytest

from csv_rows import read_rows


@pytest.fixture
def recipe(tiny_recipe):
    return tiny_recipe()


def test_from_a_recipe_to_a_student(plait, recipe, tmp_path):
    out = tmp_path / "pairs.csv"
    done = plait("pairs", recipe, "--task", "same", "--neighbours", "2", "--out", out)
    assert done.code == 0, done.err
    rows = read_rows(out)
    assert list(rows[0]) == ["a", "b", "similarity"]
    assert done.out.startswith(f"{len(rows)} pairs of ")
    told = done.out.splitlines()[1].removeprefix("To train on them: ").partition(" in [tasks.")[0]
    key, _, value = told.partition(" = ")

    teacher = tmp_path / "teacher"
    assert plait("train", recipe, "--out", teacher).code == 0
    kind = f"stage.distill.kind={{name='distill', teacher='{teacher}'}}"
    overrides = ["-o", "stages=['distill']", "-o", kind, "-o", f"tasks.same.{key}={value}"]
    done = plait("train", recipe, "--out", tmp_path / "student", *overrides)
    assert done.code == 0, done.err
    facts = json.loads((tmp_path / "student" / "run.json").read_text())["data"]
    assert facts["unlabelled"]["same"]["rows"] == len(rows)
    planned = plait("plan", recipe, *overrides).out
    assert f"{32 + len(rows):,}" in planned
    checked = plait("check", recipe, *overrides)
    assert "unlabelled" in checked.out, checked.err


def test_one_task_of_pairs_needs_no_name(plait, recipe, tmp_path):
    text = recipe.read_text("utf-8")
    recipe.write_text(text[: text.index("[tasks.near]")], "utf-8")
    assert plait("pairs", recipe, "--out", tmp_path / "p.csv").code == 0


def test_a_test_file_that_is_not_there_is_told(plait, recipe, tmp_path):
    """Nobody can say which texts it has."""
    gone = ["-o", "tasks.near.test='gone.csv'"]
    done = plait("pairs", recipe, "--task", "same", "--out", tmp_path / "p.csv", *gone)
    assert done.code == 0, done.err
    assert "gone.csv is not there, so its texts cannot be left out" in done.out + done.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--task must say whose texts to pair (same, near)"),
        (["--task", "sane"], "--task 'sane' is no task of tiny; did you mean 'same'?"),
        (["--task", "mood"], "task 'mood' has one text a row, and nothing to pair"),
        (["--task", "same", "--least", "1"], "no two texts of same are so much alike and new"),
    ],
)
def test_what_cannot_be(plait, recipe, tmp_path, words, told):
    done = plait("pairs", recipe, "--out", tmp_path / "p.csv", *words)
    assert done.code == 2
    assert told in done.complaint()
    assert not (tmp_path / "p.csv").exists()


def test_a_file_that_is_there_stays(plait, recipe, tmp_path):
    (tmp_path / "p.csv").write_text("mine")
    done = plait("pairs", recipe, "--task", "same", "--out", tmp_path / "p.csv")
    assert "exists already and is not overwritten" in done.complaint()
    done = plait("pairs", recipe, "--task", "same", "--out", tmp_path / "no" / "p.csv")
    assert "there is no folder" in done.complaint()
