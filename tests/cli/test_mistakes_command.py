"""`plait mistakes`: what is shown, what is written, what is refused."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from csv_rows import read_rows
from plait.analysis.mistakes import Mistake, Neighbour
from plait.cli.mistakes import _show_mistake, _show_text
from plait.data.split import Place


def test_all_tasks_on_one_screen(plait, trained):
    done = plait("mistakes", trained)
    assert (done.code, done.err) == (0, "")
    assert "mood, 18 dev rows: accuracy " in done.out
    assert "near, 12 dev rows: mae " in done.out
    assert "farthest first" in done.out
    assert " sure) for " in done.out
    assert "mood-dev.csv line " in done.out
    assert " in training: " in done.out
    assert "rows with " in done.out
    assert len(done.out.splitlines()) < 60


def test_beside_itself_nothing_changes(plait, trained):
    done = plait("mistakes", trained, "--task", "mood", "--against", trained, "--no-nearest")
    assert done.code == 0
    assert f"against {trained}: 0 fixed, 0 broken; McNemar's exact p 1.000" in done.out
    assert "in training:" not in done.out


def test_json_and_csv(plait, trained, tmp_path):
    path = tmp_path / "wrong.csv"
    done = plait("mistakes", trained, "--task", "near", "--top", 3, "--csv", path, "--json")
    values = json.loads(done.out)
    assert (values["run"], values["split"]) == (str(trained), "dev")
    near = values["tasks"]["near"]
    assert len(near["worst"]) == 3
    rows = read_rows(path)
    assert len(rows) == near["mistakes"] > 5
    assert rows[0]["id"] == near["worst"][0]["id"]
    assert int(rows[0]["line"]) == near["worst"][0]["line"]


def test_a_long_text_is_wrapped_and_cut(plait, trained, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    data = tmp_path / "data"
    shutil.copytree(trained.parent / "data", data)
    text = "the film was very " * 60
    for word in ("bad", "so-so", "good"):
        row = f"x,{text} .,{word}\n"
        (data / "mood-dev.csv").write_text(f"id,text,label\n{row}", encoding="utf-8")
        done = plait("mistakes", trained, "--task", "mood", "--data", data, "--no-nearest")
        if "nothing is wrong" not in done.out:
            break
    shown = [line for line in done.out.splitlines() if line.startswith("  the film")]
    assert max(map(len, done.out.splitlines())) < 100
    assert " …" in done.out
    assert len(shown) <= 3


def test_shared_words_are_underlined_on_a_terminal():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=40, highlight=False)
    _show_text(console, "The cat's [bold] hat", frozenset({"cat's", "the"}))
    assert file.getvalue() == "  \x1b[4mThe\x1b[0m \x1b[4mcat's\x1b[0m [bold] hat\n"


def test_a_text_of_several_lines_is_shown_in_one():
    file = io.StringIO()
    place = Place(Path("mail.csv"), 2)
    near = Neighbour(("Hello,\n\nwhere is it?\nRené",), "late", "7", place, 0.9, False)
    mistake = Mistake(("One\ntwo",), "late", "1", place, "lost", 0.8, 0.8, None, (near,))
    _show_mistake(Console(file=file, width=80, markup=False), mistake)
    assert file.getvalue().splitlines()[2:] == [
        "  One two",
        "  nearest (0.90) in training: late  [mail.csv line 2]",
        "    Hello, where is it? René",
    ]


def test_without_training_rows_it_goes_on(plait, trained, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(trained.parent / "data", data)
    (data / "mood-train.csv").unlink()
    done = plait("mistakes", trained, "--task", "mood", "--data", data)
    assert done.code == 0
    assert "note: nothing is set beside training rows: " in done.err
    assert "in training:" not in done.out


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--split", "test"], "mood-test.csv has no column 'label'"),
        (["--task", "mod"], "has no task 'mod'; did you mean 'mood'?"),
        (["--against", "nowhere"], "there is no run at nowhere"),
        (["--csv", "nowhere/x.csv"], "there is no folder nowhere for --csv nowhere/x.csv"),
        (["--data", "nowhere"], "no data folder nowhere"),
    ],
)
def test_mistakes_are_told_in_one_line(plait, trained, args, told):
    done = plait("mistakes", trained, *args)
    assert done.code == 2
    assert told in done.complaint()


def test_a_file_that_exists_is_kept(plait, trained, tmp_path):
    (tmp_path / "x.csv").write_text("mine")
    done = plait("mistakes", trained, "--csv", tmp_path / "x.csv")
    assert "is not overwritten" in done.complaint()
    assert (tmp_path / "x.csv").read_text() == "mine"


def test_runs_with_other_labels_are_not_compared(plait, trained, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(trained, other)
    recipe = (other / "recipe.toml").read_text().replace('"so-so"', '"middling"')
    (other / "recipe.toml").write_text(recipe)
    done = plait("mistakes", trained, "--against", other)
    assert "task 'mood' has other labels" in done.complaint()
