"""`plait calibrate`: temperatures kept with a run, shown, used and taken away."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from csv_rows import read_rows, write_rows
from plait.inference.calibration import fit, halves
from plait.inference.ensemble import load
from plait.inference.fitting.answers import answer_left_out
from plait.inference.predictor import Predictor


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "the run")


def test_from_a_run_to_temperatures_and_back(plait, run):
    before = Predictor.load(run).evaluate()
    done = plait("calibrate", run)
    assert done.code == 0
    # The tiny run says yes or no no better than by chance, and no temperature is high enough.
    assert "note: same: the temperature is at the limit of its range" in done.err
    assert "note: mood: only 18 dev rows" in done.err
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
    assert after.scalings["mood"].temperature == temperature
    assert lines[1].split()[2] == f"{temperature:.3f}"
    scores = after.evaluate()
    assert scores.primary == before.primary  # nothing is answered otherwise
    for task in ("mood", "same"):
        mine, theirs = scores.tasks[task].metrics, before.tasks[task].metrics
        assert mine["log_loss"] < theirs["log_loss"]

    again = plait("calibrate", run)
    assert again.out == done.out  # fitted on the model's own answers, not on scaled ones
    (command,) = re.findall(r"`plait (.*)` removes it", done.out)
    assert plait(*shlex.split(command)).out == f"{run} is no longer calibrated.\n"
    assert Predictor.load(run).evaluate().to_json() == before.to_json()
    assert plait("calibrate", run, "--undo").out == f"{run} is not calibrated.\n"


def test_a_temperature_that_does_harm_elsewhere(plait, run, tmp_path):
    """One half of dev is right throughout and would be surer, the other wrong throughout."""
    name, data = "mood-dev.csv", tmp_path / "data"
    shutil.copytree(Predictor.load(run).config.data.root, data)
    assert "calibration increases" not in plait("calibrate", run).err
    rows = read_rows(data / name)
    texts = [row["text"] for row in rows]
    answered = [answer.label for answer in Predictor.load(run).predict("mood", texts)]
    others = {"bad": "good", "so-so": "bad", "good": "bad"}
    for row, label, half in zip(rows, answered, halves(len(rows)), strict=True):
        row["label"] = label if half else others[label]
    write_rows(data / name, rows)
    done = plait("calibrate", run, "--data", data)
    assert "note: mood: calibration increases the log loss on rows it was not fitted" in done.err


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
    assert "has no task of kind classes" in plait("calibrate", run).complaint()


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
    assert f"note: mood skipped: {count} of its {count} dev rows are right" in done.err
    assert set(json.loads((run / "calibration.json").read_text())["tasks"]) == {"same"}


def test_offsets_may_change_answers(plait, run):
    plain = plait("calibrate", run)
    done = plait("calibrate", run, "--offsets")
    assert done.code == 0
    head = done.out.splitlines()[0].split()
    assert head[3:5] == ["accuracy", "after"]
    assert "accuracy" not in plain.out
    kept = json.loads((run / "calibration.json").read_text())
    assert kept["split"] == "dev"
    assert len(kept["tasks"]["mood"]["offsets"]) == 3
    assert len(kept["tasks"]["same"]["offsets"]) == 2
    model = Predictor.load(run)
    assert list(model.scalings["mood"].offsets) == kept["tasks"]["mood"]["offsets"]
    # In the mean, dev's classes are said as often as they are there.
    dev = model.load_split("dev")["mood"]
    shares = np.bincount(dev.labels.numpy().astype(int)) / len(dev)
    assert model.answer("mood", dev).mean(axis=0) == pytest.approx(shares, abs=1e-4)


# --- on rows that were left out ----------------------------------------------------------


@pytest.fixture
def folds(tmp_path, tiny_recipe, plait):
    """An ensemble of two runs that each left half of the rows out."""
    folder = tmp_path / "folds"
    recipe = tiny_recipe(folder / "data")
    listing = {"name": "two", "ensemble": {"members": [str(recipe)], "how": "mean", "folds": 2}}
    (folder / "two.toml").write_text(tomli_w.dumps(listing), encoding="utf-8")
    done = plait("train", folder / "two.toml", "--out", folder / "two", "-o", "train.max_steps=12")
    assert done.code == 0, done.err
    return folder / "two"


def test_every_member_is_calibrated_on_what_it_left_out(plait, folds):
    ensemble = load(folds)
    before = ensemble.evaluate()
    done = plait("calibrate", folds, "--left-out", "--offsets")
    assert done.code == 0, done.err
    again = f"`plait calibrate {folds} --left-out --undo` removes it."
    assert f"is kept in the members of {folds}; {again}" in done.out
    told = [line.split()[:3] for line in done.out.splitlines()[1:5]]
    names = [member.folder.name for member in ensemble.members]
    assert {tuple(words[:2]) for words in told} == {
        (f"{name},", task) for name in names for task in ("mood", "same")
    }
    assert not (folds / "calibration.json").exists()
    every = {}
    for member in ensemble.members:
        kept = json.loads((member.folder / "calibration.json").read_text())
        assert kept["split"] == "left-out"
        rows = len(member.load_split("train")["mood"])
        every[member.folder.name] = kept["tasks"]["mood"]["rows"]
        assert rows + every[member.folder.name] == 45
    assert sum(every.values()) == 45
    assert load(folds).evaluate().to_json() != before.to_json()
    assert "no longer calibrated" in plait("calibrate", folds, "--left-out", "--undo").out
    assert load(folds).evaluate().to_json() == before.to_json()


def test_rows_of_added_files_have_no_part_in_it(plait, folds, tmp_path):
    """They may ask for other answers than dev does."""
    member = shutil.copytree(load(folds).members[0].folder, tmp_path / "member")
    assert plait("calibrate", member, "--left-out").code == 0
    first = json.loads((member / "calibration.json").read_text())["tasks"]["mood"]
    recipe = tomllib.loads((member / "recipe.toml").read_text())
    train = recipe["tasks"]["mood"]["train"]
    path = Path(recipe["data"]["root"], train[0]["path"])
    more = "".join(f"x{i},an added row {i},good\n" for i in range(40))
    (path.parent / "added.csv").write_text(f"id,text,label\n{more}", encoding="utf-8")
    train.append({"path": "added.csv"})
    (member / "recipe.toml").write_text(tomli_w.dumps(recipe), encoding="utf-8")
    assert plait("calibrate", member, "--left-out").code == 0
    assert json.loads((member / "calibration.json").read_text())["tasks"]["mood"] == first


def test_groups_are_not_halved(plait, tiny_recipe, tmp_path):
    """The figures shown are those of rows whose group has no part in the other half."""
    recipe, run = tiny_recipe(), tmp_path / "run"
    path = recipe.parent / "mood-train.csv"
    rows = read_rows(path)
    write_rows(path, [{**row, "author": f"author {i % 9}"} for i, row in enumerate(rows)])
    settings = ["data.folds=2", "data.leave_out=true", "tasks.mood.group='author'"]
    options = [word for setting in ("train.max_steps=12", *settings) for word in ("-o", setting)]
    assert plait("train", recipe, "--out", run, *options).code == 0
    assert plait("calibrate", run, "--left-out").code == 0
    kept = json.loads((run / "calibration.json").read_text())["tasks"]
    _, answers = answer_left_out(run)
    for name, task in answers.items():
        if name in kept:
            assert (task.groups is None) == (name != "mood")
            found = fit(task.labels, task.uncalibrated, groups=task.groups)
            assert kept[name]["after"] == pytest.approx(found.after)
    mood = answers["mood"]
    assert kept["mood"]["after"] != pytest.approx(fit(mood.labels, mood.uncalibrated).after)
    assert len(np.unique(mood.groups)) < len(mood.labels)


def test_a_run_that_left_nothing_out(plait, run):
    complaint = plait("calibrate", run, "--left-out").complaint()
    assert "left out no training rows; train it with data.folds" in complaint
    assert not (run / "calibration.json").exists()


# --- by what others left out -------------------------------------------------------------


def test_a_run_on_all_rows_takes_what_folds_tell(plait, folds):
    recipe, run = folds.parent / "data" / "recipe.toml", folds.parent / "run"
    assert (
        plait("train", recipe, "--out", run, "-o", "train.max_steps=12", "-o", "seed=9").code == 0
    )
    before = Predictor.load(run)
    done = plait("calibrate", run, "--from", folds, "--offsets")
    assert done.code == 0, done.err
    assert "trained with different settings" not in done.err  # but for its rows and its seed
    assert f"is kept in {run}; `plait calibrate {run} --undo`" in done.out
    kept = json.loads((run / "calibration.json").read_text())
    assert (kept["split"], kept["source"]) == ("left-out", "two")
    assert "Fitted on training rows that `two` had left out." in (run / "card.md").read_text()
    assert kept["tasks"]["mood"]["rows"] == 45  # each training row once
    answers = [answer_left_out(member.folder)[1]["mood"] for member in load(folds).members]
    told = fit(
        np.concatenate([part.labels for part in answers]),
        np.concatenate([part.uncalibrated for part in answers]),
        offsets=True,
    )
    after = Predictor.load(run)
    assert after.scalings["mood"] == told.scaling
    dev = before.load_split("dev")["mood"]
    expected = told.scaling(before.answer("mood", dev))
    assert after.answer("mood", dev) == pytest.approx(expected)
    for member in load(folds).members:
        assert not (member.folder / "calibration.json").exists()
    assert "no longer calibrated" in plait("calibrate", run, "--undo").out


def test_every_member_takes_what_folds_tell(plait, run, folds, tmp_path):
    both = tmp_path / "both"
    other = shutil.copytree(run, tmp_path / "other")
    assert plait("ensemble", run, other, "--out", both, "--method", "mean").code == 0
    done = plait("calibrate", both, "--from", folds)
    assert done.code == 0, done.err
    assert f"is kept in the members of {both}" in done.out
    assert f"`plait calibrate {both} --left-out --undo` removes it" in done.out
    scalings = [member.scalings for member in load(both).members]
    assert scalings[0] == scalings[1]
    assert set(scalings[0]) == {"mood", "same"}
    assert not (both / "calibration.json").exists()
    assert "no longer" in plait("calibrate", both, "--left-out", "--undo").out
    assert not any(member.scalings for member in load(both).members)


def test_what_cannot_be_taken_from_others_is_told(plait, run, folds, tiny_recipe, tmp_path):
    complaint = plait("calibrate", run, "--from", folds, "--left-out").complaint()
    assert "use --from or --left-out, not both" in complaint
    assert "use --from or --undo" in plait("calibrate", run, "--from", folds, "--undo").complaint()
    assert "there is no run at" in plait("calibrate", run, "--from", tmp_path / "x").complaint()
    complaint = plait("calibrate", run, "--from", run).complaint()
    assert "left out no training rows; train it with data.folds" in complaint
    assert not (run / "calibration.json").exists()

    recipe = tiny_recipe(tmp_path / "else")
    table = tomllib.loads(recipe.read_text())
    table["tasks"]["alike"] = table["tasks"].pop("same")
    table["train"]["lr"] = 0.5
    recipe.write_text(tomli_w.dumps(table))
    options = ["-o", "train.max_steps=2"]
    assert plait("train", recipe, "--out", tmp_path / "new", *options).code == 0
    done = plait("calibrate", tmp_path / "new", "--from", folds)
    assert done.code == 0, done.err
    assert f"note: alike skipped: it is not a task of {folds}" in done.err
    assert f"{folds} and {tmp_path / 'new'} were trained with different settings (" in done.err
    assert set(Predictor.load(tmp_path / "new").scalings) == {"mood"}


def test_what_members_outgrow_is_told(plait, folds):
    """An ensemble with a calibration of its own is refused once its members have another."""
    told = f"The calibration of {folds} itself was made for its members as they were before: "
    for words in (["--from", folds], ["--left-out", "--undo"], ["--left-out"]):
        assert told not in plait("calibrate", folds).out
        done = plait("calibrate", folds, *words)
        assert done.code == 0, done.err
        assert told in done.out
        assert "belongs to another model" in plait("evaluate", folds).complaint()
    assert plait("calibrate", folds, "--undo").code == 0
    assert told not in plait("calibrate", folds, "--left-out").out
    assert plait("evaluate", folds).code == 0


def test_rows_that_several_left_out_are_in_one_half(plait, run, folds, tmp_path):
    """Else what suits one's answer to a row were tried on another's answer to the same row."""
    first = load(folds).members[0].folder
    twins = [shutil.copytree(first, tmp_path / name) for name in ("one", "two")]
    assert plait("ensemble", *twins, "--out", tmp_path / "twins", "--method", "mean").code == 0
    assert plait("calibrate", run, "--from", tmp_path / "twins", "--offsets").code == 0
    kept = json.loads((run / "calibration.json").read_text())["tasks"]["mood"]
    mood = answer_left_out(first)[1]["mood"]
    both = np.concatenate([mood.dataset.fingerprints] * 2)
    labels, chances = (np.concatenate([part] * 2) for part in (mood.labels, mood.uncalibrated))
    together, alone = (fit(labels, chances, offsets=True, groups=g) for g in (both, None))
    assert kept["after"] == pytest.approx(together.after)
    assert alone.after != pytest.approx(together.after)


def test_a_task_of_which_nobody_left_rows_out_is_told(plait, run, folds, monkeypatch):
    from plait.inference.fitting import calibrate

    def without(*args, **options):
        model, answers = answer_left_out(*args, **options)
        return model, {name: task for name, task in answers.items() if name != "same"}

    monkeypatch.setattr(calibrate, "answer_left_out", without)
    done = plait("calibrate", run, "--from", folds)
    assert done.code == 0, done.err
    assert f"note: same skipped: {folds} left out none of its rows" in done.err
    assert set(Predictor.load(run).scalings) == {"mood"}
