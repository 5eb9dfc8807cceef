"""`plait train --each-alone`: a run per task, a table, and going on."""

from __future__ import annotations

import json

import pytest

from plait.cli.display import Display
from plait.inference.predictor import Predictor


def line_of(out: str, task: str) -> list[str]:
    return next(line.split() for line in out.splitlines() if line.startswith(f"{task} "))


def test_a_run_for_each_task(plait, tiny_recipe, tmp_path):
    recipe, out = tiny_recipe(), tmp_path / "alone"
    done = plait("train", recipe, "--each-alone", "--out", out)
    assert done.code == 0, done.err
    assert "mood alone: 8 batches of it are in the joint run, 8 updates here" in done.err
    assert sorted(path.name for path in out.iterdir()) == ["mood", "near", "same"]
    assert line_of(done.out, "task") == ["task", "figure", "updates", "baseline", "alone"]
    for task in ("mood", "same", "near"):
        run = Predictor.load(out / task)
        assert list(run.tasks) == [task]
        result = json.loads((out / task / "scores.json").read_text())
        assert result["steps"] == 8
        assert line_of(done.out, task)[2] == "8"
    assert plait("evaluate", out / "mood").code == 0


def test_a_joint_run_beside_them_is_shown(plait, tiny_recipe, tmp_path):
    recipe, out = tiny_recipe(), tmp_path / "out"
    assert plait("train", recipe, "--out", out / "joint").code == 0
    done = plait("train", recipe, "--out", out, "--each-alone")
    assert line_of(done.out, "task")[-2:] == ["alone", "joint"]
    joint = json.loads((out / "joint" / "scores.json").read_text())["dev"]["primary"]["mood"]
    assert float(line_of(done.out, "mood")[-1]) == pytest.approx(joint, abs=5e-4)


def test_the_best_baselines_are_shown(plait, tiny_recipe, tmp_path):
    recipe, out = tiny_recipe(), tmp_path / "out"
    args = ("train", recipe, "--out", out, "--each-alone")
    assert plait(*args).code == 0
    scores = out / "mood" / "scores.json"
    result = json.loads(scores.read_text()) | {"baselines": {"mood": {"a regression": 1.0}}}
    scores.write_text(json.dumps(result))
    done = plait(*args, "--resume")
    assert line_of(done.out, "mood")[3] == "1.000"
    (note,) = [line for line in done.out.splitlines() if line.startswith("note: mood: ")]
    assert "does not beat a regression (1.000) on 18 dev rows" in note
    assert "--each-alone" not in note


def test_finished_ones_are_skipped(plait, tiny_recipe, tmp_path):
    recipe, out = tiny_recipe(), tmp_path / "out"
    args = ("train", recipe, "--out", out, "--each-alone")
    first = plait(*args)
    assert first.code == 0
    again = plait(*args).complaint()
    assert "mood exists already and is not overwritten; go on there with `plait train" in again
    assert "--resume --each-alone`" in again
    kept = (out / "mood" / "model.safetensors").stat().st_mtime_ns
    for path in (out / "near").iterdir():  # as if it had been stopped before the last task
        path.unlink()
    (out / "near").rmdir()
    done = plait(*args, "--resume")
    assert done.code == 0, done.err
    assert done.out == first.out
    assert (out / "mood" / "model.safetensors").stat().st_mtime_ns == kept


def test_stopped_between_two_runs(plait, tiny_recipe, tmp_path, monkeypatch):
    recipe, out = tiny_recipe(), tmp_path / "out"
    note = Display.note

    def stop(display, text):
        note(display, text)
        if text.startswith("same alone"):
            raise KeyboardInterrupt

    monkeypatch.setattr(Display, "note", stop)
    done = plait("train", recipe, "--each-alone", "--out", out)
    assert done.code == 130
    assert done.err.splitlines()[-1] == (
        "plait: stopped before the next run began; 1 run is finished. Go on with: "
        f"plait train {recipe} --out {out} --resume --each-alone"
    )


def test_one_that_was_stopped_goes_on(plait, tiny_recipe, tmp_path, monkeypatch):
    recipe, out, whole = tiny_recipe(), tmp_path / "out", tmp_path / "whole"
    args = ("train", recipe, "--each-alone", "-o", "save_every=2")
    assert plait(*args, "--out", whole).code == 0
    steps = []

    def stop(_, record):
        steps.append(record)
        if len(steps) == 11:  # the third update of the second task
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Display, "step", stop)
        done = plait(*args, "--out", out)
    assert done.code == 130
    assert "go on from what was saved last with: plait train" in done.err
    assert done.err.rstrip().endswith("--resume --each-alone")
    assert sorted(path.name for path in out.iterdir()) == ["mood", "same"]
    done = plait(*args, "--out", out, "--resume")
    assert done.code == 0, done.err
    for task in ("mood", "same", "near"):
        one, other = (f / task / "model.safetensors" for f in (out, whole))
        assert one.read_bytes() == other.read_bytes()


def test_another_recipe_is_not_gone_on_with(plait, tiny_recipe, tmp_path):
    recipe, out = tiny_recipe(), tmp_path / "out"
    args = ("train", recipe, "--out", out, "--each-alone")
    assert plait(*args).code == 0
    done = plait(*args, "--resume", "-o", "train.lr=1e-3")
    assert done.code == 2
    assert "was started with another recipe (train.lr: 0.003 -> 0.001)" in done.err


def test_each_is_pre_trained_on_its_own_texts(plait, tiny_recipe, tmp_path):
    out = tmp_path / "out"
    words = ("-o", "stages=['words', 'finetune']", "-o", "stage.words={kind='mlm', epochs=1}")
    done = plait("train", tiny_recipe(), "--each-alone", "--out", out, *words)
    assert done.code == 0, done.err
    assert (
        "mood alone: 8 batches of it are in the joint run, 8 updates here, after 4 of " in done.err
    )
    log = (out / "mood" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    losses = [event for event in map(json.loads, log) if event["event"] == "losses"]
    assert {event["stage"] for event in losses} == {"words", "finetune"}
    assert json.loads((out / "mood" / "scores.json").read_text())["steps"] == 12


def test_several_at_once_come_to_the_same(plait, tiny_recipe, tmp_path):
    recipe = tiny_recipe()
    one, two = tmp_path / "one", tmp_path / "two"
    alone = plait("train", recipe, "--each-alone", "--out", one)
    at_once = plait("train", recipe, "--each-alone", "--out", two, "--jobs", "2")
    assert at_once.code == 0, at_once.err
    assert at_once.out.replace(str(two), str(one)) == alone.out
    assert "3 of 3" in at_once.err
    for task in ("mood", "same", "near"):
        weights = [(out / task / "model.safetensors").read_bytes() for out in (one, two)]
        assert weights[0] == weights[1]
    again = plait("train", recipe, "--each-alone", "--out", two, "--jobs", "2", "--resume")
    assert again.code == 0, again.err


def test_one_that_fails_is_named(plait, tiny_recipe, tmp_path):
    out = tmp_path / "out"
    words = ["-o", "device=cuda:7"]
    done = plait("train", tiny_recipe(), "--each-alone", "--out", out, "--jobs", "3", *words)
    assert done.code == 2
    assert "device = 'cuda:7' cannot be used here" in done.err
    assert "Traceback" not in done.err


def test_jobs_are_for_several_runs(plait, tiny_recipe, tmp_path):
    done = plait("train", tiny_recipe(), "--out", tmp_path / "x", "--jobs", "2")
    assert done.code == 2
    assert "--jobs is for several runs" in done.err
