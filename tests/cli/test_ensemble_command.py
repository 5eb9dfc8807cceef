"""`plait ensemble` and `plait average`: from two runs to scores, answers and submissions."""

from __future__ import annotations

import csv
import json
import shutil

import pytest

from plait.inference.ensemble import Ensemble
from plait.inference.predictor import Predictor


@pytest.fixture
def second(session_folder, trained, plait):
    """Another run of the recipe of `trained`."""
    run = session_folder / "second"
    if not run.exists():
        done = plait("train", trained / "recipe.toml", "--out", run, "-o", "seed=3")
        assert done.code == 0, done.err
    return run


@pytest.fixture
def both(plait, trained, second, tmp_path):
    folder = tmp_path / "both"
    done = plait("ensemble", trained, second, "--out", folder)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"The ensemble of 2 runs is in {folder}.")
    return folder


def test_evaluate_predict_and_submit_take_it(plait, both, tmp_path):
    ensemble = Ensemble.load(both)
    done = plait("evaluate", both, "--json")
    assert (done.code, done.err) == (0, "")
    values = json.loads(done.out)
    assert values["primary"] == ensemble.evaluate("dev").to_json()["primary"]
    assert "mood, 18 dev rows" in plait("evaluate", both).out

    text = "the film was great ."
    answer = ensemble.predict("mood", [text])[0]
    done = plait("predict", both, "--task", "mood", text)
    assert done.out == f"{text}\n  mood: {answer.label} ({answer.confidence:.0%} sure)\n"

    done = plait("submit", both, "--out", tmp_path / "answers", "--split", "test")
    assert (done.code, done.err) == (0, "")
    with (tmp_path / "answers" / "mood-test-output.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["id", "Predicted_Mood"]
    found = ensemble.predict("mood", [text])[0].value
    assert rows[1] == ["t0", str(found)]
    assert len(rows) == 4


def test_the_mean_is_another_ensemble(plait, trained, second, tmp_path):
    folder = tmp_path / "mean"
    assert plait("ensemble", trained, second, "--out", folder, "--how", "mean").code == 0
    assert Ensemble.load(folder).how == "mean"


SINGLE = {
    "ensemble": "an ensemble of one run answers as the run itself does",
    "average": "the average of one run is the run itself",
}


@pytest.mark.parametrize("command", SINGLE)
def test_one_run_alone_is_told_to_be_that_run(plait, trained, tmp_path, command):
    done = plait(command, trained, "--out", tmp_path / "one")
    assert done.code == 0
    assert done.err == f"note: {SINGLE[command]}; name others beside {trained} to combine them\n"
    answers = [plait("evaluate", folder, "--json").out for folder in (trained, tmp_path / "one")]
    assert json.loads(answers[0])["primary"] == json.loads(answers[1])["primary"]


@pytest.mark.parametrize("command", ["ensemble", "average"])
def test_mistakes_are_told_in_one_line(plait, trained, tmp_path, command):
    out = tmp_path / "out"
    assert "there is no run at" in plait(command, trained, "x", "--out", out).complaint()
    assert "missing option '--out'" in plait(command, trained).complaint()
    assert "missing argument 'RUN'" in plait(command, "--out", out).complaint()
    assert "exists already" in plait(command, trained, "--out", trained).complaint()
    assert not out.exists()


def test_an_average_is_a_run(plait, trained, second, tmp_path):
    soup = tmp_path / "soup"
    done = plait("average", trained, second, "--out", soup)
    assert (done.code, done.err) == (0, "")
    assert done.out == f"The average of 2 runs is in {soup}. Try next:\n  plait evaluate {soup}\n"
    assert not (soup / "scores.json").exists()
    assert plait("evaluate", soup).code == 0
    assert plait("ensemble", soup, trained, "--out", tmp_path / "with").code == 0
    assert (
        "is an average of runs"
        in plait("train", soup / "recipe.toml", "--out", soup, "--resume").complaint()
    )


def test_an_average_with_scores(plait, trained, second, session_folder, tmp_path):
    soup = tmp_path / "soup"
    done = plait("average", trained, second, "--out", soup, "--data", session_folder / "data")
    assert (done.code, done.err) == (0, "")
    assert "mood, 18 dev rows" in done.out
    scores = json.loads((soup / "scores.json").read_text())
    assert scores["dev"] == json.loads(json.dumps(Predictor.load(soup).evaluate().to_json()))
    assert scores["averaged"] == [str(trained), str(second)]


def test_a_member_is_missing(plait, both, trained, second, tmp_path):
    copy = shutil.copytree(second, tmp_path / "copy")
    folder = tmp_path / "e"
    assert plait("ensemble", trained, copy, "--out", folder).code == 0
    shutil.rmtree(copy)
    assert "which is not there" in plait("evaluate", folder).complaint()
