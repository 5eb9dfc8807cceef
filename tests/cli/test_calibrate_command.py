"""`plait calibrate`: temperatures kept with a run, shown, used and taken away."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import pytest
import tomli_w

from csv_rows import read_rows, write_rows
from plait.calibration import halves
from plait.predict import Predictor


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def test_from_a_run_to_temperatures_and_back(plait, run):
    before = Predictor.load(run).evaluate()
    done = plait("calibrate", run)
    assert done.code == 0
    # The tiny run says yes or no no better than by chance, and no temperature is high enough.
    assert "note: the temperature of same is at the end of what is tried" in done.err
    assert "note: mood: 18 dev rows are few" in done.err
    lines = done.out.splitlines()
    assert lines[0].split() == [
        "task",
        "rows",
        "temperature",
        "ECE",
        "after",
        "log",
        "loss",
        "after",
    ]
    assert [line.split()[0] for line in lines[1:3]] == ["mood", "same"]
    kept = json.loads((run / "calibration.json").read_text())
    assert set(kept["tasks"]) == {"mood", "same"}

    after = Predictor.load(run)
    temperature = kept["tasks"]["mood"]["temperature"]
    assert after.temperatures["mood"] == temperature
    assert lines[1].split()[2] == f"{temperature:.3f}"
    scores = after.evaluate()
    assert scores.primary == before.primary  # nothing is answered otherwise
    for task in ("mood", "same"):
        mine, theirs = scores.tasks[task].metrics, before.tasks[task].metrics
        assert mine["log_loss"] < theirs["log_loss"]

    again = plait("calibrate", run)
    assert again.out == done.out  # fitted on the model's own answers, not on scaled ones
    assert plait("calibrate", run, "--undo").out == f"{run} is no longer calibrated.\n"
    assert Predictor.load(run).evaluate().to_json() == before.to_json()
    assert plait("calibrate", run, "--undo").out == f"{run} is not calibrated.\n"


def test_a_temperature_that_does_harm_elsewhere(plait, run, tmp_path):
    """One half of dev is right throughout and would be surer, the other wrong throughout."""
    name, data = "mood-dev.csv", tmp_path / "data"
    shutil.copytree(Predictor.load(run).config.data.root, data)
    assert "worse; better --undo" not in plait("calibrate", run).err
    rows = read_rows(data / name)
    texts = [row["text"] for row in rows]
    answered = [answer.label for answer in Predictor.load(run).predict("mood", texts)]
    others = {"bad": "good", "so-so": "bad", "good": "bad"}
    for row, label, half in zip(rows, answered, halves(len(rows)), strict=True):
        row["label"] = label if half else others[label]
    write_rows(data / name, rows)
    done = plait("calibrate", run, "--data", data)
    assert "note: mood: on rows that it was not fitted on, a temperature makes" in done.err


def test_mistakes_are_told_in_one_line(plait, run, tmp_path):
    assert "there is no run at" in plait("calibrate", tmp_path / "x").complaint()
    assert "there is no run at" in plait("calibrate", tmp_path / "x", "--undo").complaint()
    assert "no such option" in plait("calibrate", run, "--no").complaint()
    complaint = plait("calibrate", run, "--data", tmp_path).complaint()
    assert "mood-dev.csv" in complaint
    assert not (run / "calibration.json").exists()


def test_a_run_without_classes(plait, tiny_recipe, tmp_path):
    recipe = tiny_recipe()
    table = tomllib.loads(recipe.read_text())
    del table["tasks"]["mood"], table["tasks"]["same"]
    recipe.write_text(tomli_w.dumps(table))
    run = tmp_path / "run"
    assert plait("train", recipe, "--out", run, "-o", "train.max_steps=2").code == 0
    assert "has no task of classes" in plait("calibrate", run).complaint()


def test_dev_rows_that_are_all_right_tell_no_temperature(plait, run, tmp_path):
    model = Predictor.load(run)
    root = Path(model.config.data.root)
    other = shutil.copytree(root, tmp_path / "other")
    rows = read_rows(root / "mood-dev.csv")
    said = model.predict("mood", [row["text"] for row in rows])
    right = [row for row, answer in zip(rows, said, strict=True) if answer.label == row["label"]]
    assert 2 < len(right) < len(rows)
    write_rows(other / "mood-dev.csv", right)
    done = plait("calibrate", run, "--data", other)
    count = len(right)
    assert f"note: mood is left as it is: of its {count} dev rows {count} are right" in done.err
    assert set(json.loads((run / "calibration.json").read_text())["tasks"]) == {"same"}
