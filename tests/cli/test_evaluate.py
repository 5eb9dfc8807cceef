"""`plait evaluate`, `explain`, `audit`, `report` and `export` of a trained run."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console

from csv_rows import read_rows
from plait.analysis.mistakes import Mistake, Neighbour
from plait.cli.errors import _show_mistake, _show_text
from plait.cli.evaluate import _class_rows
from plait.data.split import Place
from plait.inference.card import make_card
from plait.inference.predictor import Predictor
from plait.tasks import TaskSpec


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the run, for tests that write into it."""
    return shutil.copytree(trained, tmp_path / "run")


# --- scores ------------------------------------------------------------------------------


def test_every_task_is_shown(plait, trained):
    done = plait("evaluate", trained)
    assert (done.code, done.err) == (0, "")
    assert "mood, 18 dev rows" in done.out
    assert "pearson" in done.out
    assert "  as 0  as 1  as 2" in done.out
    assert done.out.splitlines()[-1].startswith("average score ")


def test_json_is_what_the_predictor_says(plait, trained):
    done = plait("evaluate", trained, "--json", "--split", "train", "--task", "mood")
    assert (done.code, done.err) == (0, "")
    values = json.loads(done.out)
    assert (values.pop("run"), values.pop("split")) == (str(trained), "train")
    scores = Predictor.load(trained).evaluate("train", tasks=["mood"])
    assert values == json.loads(json.dumps(scores.to_json()))


def test_a_run_that_is_not_finished(plait, run, tmp_path):
    (run / "scores.json").unlink()
    note = f"note: {run} is not finished: this is its best model so far\n"
    assert plait("evaluate", run).err == note
    assert plait("predict", run, "--task", "mood", "good").err == note
    (run / "model.safetensors").unlink()
    (run / "scores.json").write_text("{}")
    told = plait("evaluate", run).complaint()
    assert "is a finished run, but its model.safetensors is missing" in told


def test_pairs_that_training_pairs_imply(plait, trained, tiny_recipe):
    """a-b, b-c in train: dev's a-c is implied and its own a-b is there; two others are not."""
    folder = tiny_recipe("other").parent
    train = ["1,red,blue,1", "2,Blue!,green,1", "3,tree,house,0"]
    dev = ["1,green,red,1", "2,red,blue,0", "3,red,tree,0", "4,tree,house,1"]
    for name, rows in (("train", train), ("dev", dev)):
        text = "\n".join(["id,a,b,label", *rows, ""])
        (folder / f"same-{name}.csv").write_text(text, encoding="utf-8")
    args = ("evaluate", trained, "--data", folder, "--without-implied")
    values = json.loads(plait(*args, "--json").out)
    rest = values["without_implied"]
    assert rest["left_out"] == {"same": 2}
    assert rest["tasks"]["same"]["num_examples"] == 2
    assert rest["tasks"]["mood"] == values["tasks"]["mood"]
    assert "without pairs that training pairs imply" in plait(*args).out


def test_long_labels_and_many_classes():
    def table(labels):
        spec = TaskSpec(kind="classes", labels=labels, text=("text",))
        chances = [[float(i == j) for j in range(len(labels))] for i in range(len(labels))]
        return _class_rows(spec.kind.score(list(range(len(labels))), chances))

    assert table(("x" * 100, "y"))[1][0] == "0 " + "x" * 31 + "…"
    assert {len(row) for row in table(tuple(f"class {i}" for i in range(30)))} == {5}
    assert table(("1", "2", "3"))[0][5:] == ["as 1", "as 2", "as 3"]


# --- errors ------------------------------------------------------------------------------


def test_the_worst_errors(plait, trained, tmp_path):
    path = tmp_path / "wrong.csv"
    done = plait("evaluate", trained, "--errors", 2, "--csv", path)
    assert (done.code, done.err) == (0, "")
    assert "Errors of mood: " in done.out
    assert "Errors of near: largest error first" in done.out
    assert "%), actual " in done.out
    assert "mood-dev.csv line " in done.out
    assert " in training: " in done.out
    assert "texts with " in done.out
    assert done.out.endswith(f"Every error is in {path}.\n")


def test_errors_as_json_and_csv(plait, trained, tmp_path):
    path = tmp_path / "wrong.csv"
    words = ["--task", "near", "--errors", 3, "--csv", path, "--json"]
    near = json.loads(plait("evaluate", trained, *words).out)["errors"]["near"]
    assert len(near["worst"]) == 3
    rows = read_rows(path)
    assert len(rows) == near["mistakes"] > 5
    assert rows[0]["id"] == near["worst"][0]["id"]


def test_against_itself_nothing_changes(plait, trained):
    done = plait("evaluate", trained, "--task", "mood", "--against", trained)
    assert done.code == 0
    told = f"mood against {trained}: 0 corrected, 0 broken; exact McNemar test p = 1.000, not"
    assert told in done.out
    assert "in training:" not in done.out


def test_runs_with_other_labels_are_not_compared(plait, trained, run):
    recipe = (run / "recipe.toml").read_text().replace('"so-so"', '"middling"')
    (run / "recipe.toml").write_text(recipe)
    told = plait("evaluate", trained, "--against", run).complaint()
    assert "task 'mood' has other labels" in told


def test_without_training_rows(plait, trained, tmp_path):
    data = shutil.copytree(trained.parent / "data", tmp_path / "data")
    (data / "mood-train.csv").unlink()
    done = plait("evaluate", trained, "--task", "mood", "--data", data, "--errors", 1)
    assert done.code == 0
    assert "note: no nearest training rows are shown: " in done.err


def test_words_of_both_texts_are_underlined_on_a_terminal():
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=40, highlight=False)
    _show_text(console, "The cat's [bold] hat", frozenset({"cat's", "the"}))
    assert file.getvalue() == "  \x1b[4mThe\x1b[0m \x1b[4mcat's\x1b[0m [bold] hat\n"


def test_an_error_with_its_nearest_row():
    file = io.StringIO()
    place = Place(Path("mail.csv"), 2)
    nearest = (Neighbour(("Hello,\n\nwhere is it?\nRené",), "late", "7", place, 0.9, False),)
    mistake = Mistake(("One\ntwo",), "late", "1", place, "lost", 0.8, 0.8, None, nearest)
    _show_mistake(Console(file=file, width=80, markup=False), mistake)
    assert file.getvalue().splitlines()[1:] == [
        "predicted lost (80%), actual late  [1, mail.csv line 2]",
        "  One two",
        "  nearest text, similarity 0.90, in training: late  [mail.csv line 2]",
        "    Hello, where is it? René",
    ]


# --- explain -----------------------------------------------------------------------------


def test_the_words_of_a_prediction(plait, trained):
    done = plait("explain", trained, "--task", "mood", "a good day")
    assert (done.code, done.err) == (0, "")
    assert "with all words and" in done.out
    lines = [line for line in done.out.splitlines() if line[2:3] in ("+", "-")]
    assert sorted(line.split()[1] for line in lines) == ["a", "day", "good"]
    pair = plait("explain", trained, "--task", "same", "a cat", "a dog")
    assert "cat (text 1)" in pair.out
    found = json.loads(plait("explain", trained, "--task", "mood", "a good day", "--json").out)
    assert [part["text"] for part in found["parts"]] == ["a", "good", "day"]


# --- audit -------------------------------------------------------------------------------


def test_an_audit_is_kept_with_the_run(plait, run):
    done = plait("audit", run, "--rows", 10)
    assert (done.code, done.err) == (0, "")
    assert "gendered words, own sentences " in done.out
    assert "largest change (" in done.out
    assert done.out.endswith(f"more examples are in {run / 'audit.json'}.\n")
    card = json.loads((run / "audit.json").read_text(encoding="utf-8"))
    assert card["settings"]["rows_per_probe"] == 10
    assert card["summary"][0]["probe"] in done.out
    assert "## Audit" in (run / "card.md").read_text(encoding="utf-8")


def test_your_own_words(plait, run, tmp_path):
    words = tmp_path / "words.toml"
    table = "[probes.Orte]\nwords = ['Bonn', 'Halle']\nsentences = ['In {word}.']"
    words.write_text(table)
    done = plait("audit", run, "--rows", 10, "--words", words)
    assert "Orte, your sentences " in done.out
    assert "are English. For texts in another language" in done.out
    words.write_text(f"english = false\n{table}")
    done = plait("audit", run, "--rows", 10, "--words", words)
    assert (done.code, done.err) == (0, "")
    assert "Orte, your sentences " in done.out
    assert "gendered words" not in done.out


def test_an_audit_of_another_task_keeps_the_first(plait, run):
    for task in ("mood", "same", "mood"):
        assert plait("audit", run, "--task", task, "--rows", 0).code == 0
    card = json.loads((run / "audit.json").read_text(encoding="utf-8"))
    for key in ("summary", "probes"):
        assert {entry["task"] for entry in card[key]} == {"mood", "same"}
        assert len(card[key]) == len({(e["task"], e["probe"]) for e in card[key]})


def test_a_folder_that_is_not_writable(plait, run, monkeypatch):
    monkeypatch.setattr("os.access", lambda _, mode: mode != os.W_OK)
    (run / "model.safetensors").unlink()  # it is not loaded before
    for command in ("audit", "report"):
        assert f"{run} is not writable; choose another file" in plait(command, run).complaint()


# --- report and card ---------------------------------------------------------------------


def test_a_report(plait, run, trained, tmp_path, monkeypatch):
    done = plait("report", run)
    assert done.code == 0, done.err
    assert done.out == f"The report is in {run / 'report.html'}.\n"
    monkeypatch.chdir(tmp_path)
    done = plait("report", run, trained)
    assert (done.code, done.out) == (0, "The report is in report.html.\n")


def test_a_model_card(plait, run, trained, tmp_path):
    done = plait("report", trained, "--out", "-")
    assert (done.code, done.err, done.out) == (0, "", make_card(trained))
    done = plait("report", run, "--out", tmp_path / "new.md")
    assert done.out == f"The model card is in {tmp_path / 'new.md'}.\n"
    assert (tmp_path / "new.md").read_text(encoding="utf-8") == make_card(run)
    (run / "card.md").write_text("# Ours\n", encoding="utf-8")
    done = plait("report", run, "--out", run / "card.md")
    (aside,) = run.glob("card-*.md")
    assert done.out.endswith(f" The previous card is in {aside}.\n")
    assert aside.read_text(encoding="utf-8") == "# Ours\n"
    assert "is not a run or an ensemble" in plait("report", tmp_path, "--out", "-").complaint()


# --- export ------------------------------------------------------------------------------


def test_an_export_is_evaluated_and_used(trained, plait, tmp_path):
    pytest.importorskip("onnxruntime")
    folder = tmp_path / "onnx"
    done = plait("export", trained, "--task", "mood", "--out", folder)
    assert done.code == 0, done.err
    assert done.out.splitlines()[0].split()[:2] == ["task", "metric"]
    assert done.out.endswith(f"The export is in {folder}; see README.md there.\n")
    both = [plait("evaluate", run, "--task", "mood", "--json") for run in (trained, folder)]
    scores = [json.loads(done.out)["primary"] for done in both]
    assert scores[0] == pytest.approx(scores[1])
    words = ("--task", "mood", "the film was great .")
    assert plait("predict", trained, *words).out == plait("predict", folder, *words).out
    assert plait("evaluate", folder, "--task", "mood", "--errors", 1).code == 0


def test_export_without_the_extra(trained, plait, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    wanted = "ONNX needs the package onnxruntime: pip install 'plait[export]'"
    assert plait("export", trained, "--out", tmp_path / "o").complaint() == wanted
    assert not (tmp_path / "o").exists()
