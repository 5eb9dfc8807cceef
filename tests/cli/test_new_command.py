"""`plait new` as a user meets it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from plait.config import read_recipe


@pytest.fixture
def files(tiny_recipe) -> list[Path]:
    """The data files of the tiny recipe, which has three tasks in six files."""
    folder = tiny_recipe("given").parent
    (folder / "recipe.toml").unlink()
    return sorted(folder.glob("*.csv"))


def test_files_become_a_recipe_that_trains(plait, files, tiny_encoder, tmp_path):
    out = tmp_path / "mine"
    done = plait("new", out, *files, "--encoder", tiny_encoder)
    assert done.code == 0, done.err
    assert "Try next:" in done.out
    config = read_recipe(out / "recipe.toml")
    assert {name: task.kind for name, task in config.tasks.items()} == {
        "mood": "classes",
        "near": "score",
        "same": "binary",
    }
    small = ("-o", "encoder.max_length=32", "-o", "train.epochs=1")
    done = plait("train", out / "recipe.toml", "--out", tmp_path / "run", *small)
    assert done.code == 0, done.err
    assert set(json.loads((tmp_path / "run" / "scores.json").read_text())["dev"]["primary"]) == {
        "mood",
        "near",
        "same",
    }


def test_every_guess_is_shown_with_its_reason(plait, files, tmp_path):
    done = plait("new", tmp_path / "mine", files[1], "--dry-run")
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split() == ["task", "what", "guess", "why"]
    shown = [line.split()[:3] for line in done.out.splitlines()[1:6]]
    assert shown[:4] == [
        ["mood", "text", "text"],
        ["mood", "label", "label"],
        ["mood", "kind", "classes,"],
        ["mood", "id", "id"],
    ]
    assert not (tmp_path / "mine").exists()


def test_many_tasks_have_a_line_each(plait, files, tmp_path):
    for i in range(9):
        (tmp_path / f"t{i}.csv").write_bytes(files[1].read_bytes())
    done = plait("new", tmp_path / "mine", *sorted(tmp_path.glob("t*.csv")), "--dry-run")
    assert done.out.splitlines()[0].split()[:2] == ["task", "kind"]
    assert [line.split()[0] for line in done.out.splitlines()[1:10]] == [f"t{i}" for i in range(9)]


def test_files_that_are_left_out_come_first_and_what_to_do_last(plait, files, tmp_path):
    other = tmp_path / "sizes.csv"
    other.write_text("name,size\na,1\nb,2\n", encoding="utf-8")
    done = plait("new", tmp_path / "mine", *files, other)
    lines = done.out.splitlines()
    assert lines[0].startswith(f"note: left out: {other}: no column looks like text")
    assert lines[1] == ""
    assert lines[2].split() == ["task", "what", "guess", "why"]
    assert not any(line.startswith("note: left out") for line in lines[1:])
    assert lines[-1].startswith("  plait train ")


def test_on_a_terminal_it_asks_once(plait, files, tmp_path, monkeypatch):
    done = plait("new", tmp_path / "mine", files[1], stdin=None)  # nobody answers
    assert done.code == 130
    assert not (tmp_path / "mine").exists()
    assert plait("new", tmp_path / "other", files[1], "--yes", stdin=None).code == 0
    asked = []
    monkeypatch.setattr("typer.confirm", lambda text, **_: asked.append(text))
    assert plait("new", tmp_path / "mine", files[1], stdin=None).code == 0
    assert len(asked) == 1
    assert (tmp_path / "mine" / "recipe.toml").exists()


def test_nothing_is_overwritten_unasked(plait, files, tmp_path):
    words = ("new", tmp_path / "mine", files[1])
    assert plait(*words).code == 0
    again = plait(*words)
    assert again.code == 2
    assert "recipe.toml exists already and is not overwritten" in again.complaint()
    assert plait(*words, "--overwrite").code == 0


def test_a_data_root_in_the_environment_is_named(plait, files, tmp_path, monkeypatch):
    done = plait("new", tmp_path / "mine", files[0], files[1])
    assert "--data" not in done.out
    monkeypatch.setenv("PLAIT_DATA", str(tmp_path))
    done = plait("new", tmp_path / "other", files[0], files[1])
    assert f"--data {files[0].parent}" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "name the data files after the folder"),
        (("nowhere.csv",), "nowhere.csv is not there"),
        ((__file__, "nowhere.csv"), "nowhere.csv is not there"),
        (("--task", "mood"), "--task 'mood' is not of the form NAME=FILE"),
        (("hf:",), "names no data set"),
        ((__file__, "--separator", "tab"), "separator 'tab' is not one plain character"),
        (("/",), "/ is a folder: name its files, such as"),
    ],
)
def test_complaints(plait, words, message, tmp_path):
    done = plait("new", tmp_path / "mine", *words)
    assert done.code == 2
    assert message in done.complaint()
    assert not (tmp_path / "mine").exists()


def test_a_separator_as_a_shell_passes_it_on(plait, tmp_path):
    path = tmp_path / "mood.txt"
    moods = ("good", "bad", "dull") * 20
    rows = "".join(f"film {i // 6} was {mood}\t{mood}\n" for i, mood in enumerate(moods))
    path.write_text(f"text\tmood\n{rows}", encoding="utf-8")
    assert plait("new", tmp_path / "mine", path, "--separator", r"\t").code == 0


def test_the_hub_needs_its_package(plait, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "pip install" in plait("new", tmp_path / "mine", "hf:owner/name").complaint()
