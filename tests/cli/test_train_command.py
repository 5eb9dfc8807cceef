"""`plait train`: the whole way, the user's mistakes, and Ctrl-C."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.cli.train import next_commands, resume_command, show_outcome
from plait.config import RunConfig, read_recipe

STOPPER = '''
import os, signal
from plait.training.listeners import LISTENERS, Listener


@LISTENERS.register("stopper")
class Stopper(Listener):
    """Presses Ctrl-C after the third update, once."""

    pressed = False

    def step(self, record):
        if record.step == 3 and not Stopper.pressed:
            Stopper.pressed = True
            os.kill(os.getpid(), signal.SIGINT)
'''


def test_results_go_to_output_and_progress_to_errors(plait, tiny_recipe, tmp_path):
    done = plait("train", tiny_recipe(), "--out", tmp_path / "run")
    assert done.code == 0
    assert "training tiny on mood, same, near" in done.err
    assert "dev after 24 updates" in done.err
    lines = done.out.splitlines()
    assert lines[1].split() == ["task", "figure", "baseline", "trained"]
    assert [line.split()[:2] for line in lines[2:5]] == [
        ["mood", "accuracy"],
        ["same", "accuracy"],
        ["near", "pearson"],
    ]
    assert "of 24 updates" in done.out
    assert f"plait evaluate {tmp_path / 'run'}" in done.out


def test_a_run_gets_a_folder_of_its_own(plait, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert plait("train", tiny_recipe(), "-o", "train.max_steps=1", "--seed", 3).code == 0
    (run,) = Path("runs").iterdir()
    assert run.name.startswith("tiny-2")
    assert read_recipe(run / "recipe.toml").seed == 3


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["corse"], "no recipe 'corse'; did you mean 'course'?"),
        (["nowhere.toml"], "no recipe file nowhere.toml"),
        (["course", "-o", "train.epohcs=2"], "train.epohcs is not a setting; did you mean"),
        (["course", "-o", "epochs"], "is not key=value, nor a .toml file"),
        (["course", "--data", "nowhere"], "no data folder nowhere (set by --data)"),
        (["course", "--resume"], "--resume needs --out"),
        (["course", "--resume", "--out", "nowhere"], "no run at nowhere to resume"),
    ],
)
def test_mistakes_are_told_in_one_line(plait, tmp_path, monkeypatch, tiny_encoder, args, told):
    monkeypatch.chdir(tmp_path)
    # course asks for more tokens than the tiny encoder has positions for
    small = ["-o", f"encoder.source={tiny_encoder}", "-o", "encoder.max_length=32"]
    done = plait("train", *args, *small)
    assert done.code == 2
    assert told in done.complaint()
    assert list(tmp_path.iterdir()) in ([], [tmp_path / "cache"])


def test_a_bad_row_is_named_and_nothing_is_left_behind(plait, tiny_recipe, tmp_path):
    recipe = tiny_recipe()
    data = recipe.parent / "mood-train.csv"
    lines = data.read_text(encoding="utf-8").splitlines()
    lines[4] = "m3,the film was great .,wonderful"
    data.write_text("\n".join(lines), encoding="utf-8")
    done = plait("train", recipe, "--out", tmp_path / "run")
    assert done.code == 2
    complaint = done.complaint()
    assert "mood-train.csv, line 5: label 'wonderful' is none of bad, so-so, good" in complaint
    assert not (tmp_path / "run").exists()


def test_what_is_there_is_not_overwritten(plait, trained, tiny_recipe):
    done = plait("train", tiny_recipe(), "--out", trained)
    assert done.code == 2
    assert f"{trained} exists already and is not overwritten" in done.complaint()


def test_ctrl_c_saves_and_says_how_to_go_on(plait, tiny_recipe, tmp_path):
    recipe, run = tiny_recipe(), tmp_path / "run"
    (tmp_path / "stopper.py").write_text(STOPPER)
    text = recipe.read_text(encoding="utf-8").replace(
        "listeners = []", 'listeners = ["stopper"]\nplugins = ["../stopper.py"]'
    )
    recipe.write_text(text, encoding="utf-8")
    done = plait("train", recipe, "--out", run)
    assert done.code == 130
    assert done.out == ""
    command = f"plait train {recipe} --out {run} --resume"
    assert done.err.splitlines()[-1] == (
        f"plait: stopped after 3 updates; everything is saved in {run}. Go on with: {command}"
    )
    done = plait(*command.split()[1:])
    assert done.code == 0
    assert "going on after 3 updates" in done.err
    assert "of 24 updates" in done.out
    done = plait(*command.split()[1:])
    assert done.code == 0
    assert "is finished already" in done.err
    done = plait(*command.split()[1:], "-o", "train.epochs=1")
    assert "was started with another recipe" in done.complaint()
    assert "is finished already" not in done.err


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ([], "stopped before training began; nothing was written"),
        (["recipe.toml"], "stopped before anything was saved; start over with: plait train"),
        (["recipe.toml", "checkpoint.safetensors"], "go on from what was saved last with: plait"),
    ],
)
def test_ctrl_c_at_once_says_what_is_left(plait, tiny_recipe, tmp_path, monkeypatch, there, told):
    run = tmp_path / "run"

    def stop(*_, **__):
        for name in there:
            run.mkdir(exist_ok=True)
            (run / name).touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("plait.training.run.train", stop)
    done = plait("train", tiny_recipe(), "--out", run)
    assert done.code == 130
    assert told in done.complaint()


def test_the_command_to_resume_can_be_pasted():
    command = resume_command("my recipe.toml", Path("a run"), "my data", ["x=[1, 2]", "seed=3"])
    assert command == (
        "plait train 'my recipe.toml' --out 'a run' --data 'my data' -o 'x=[1, 2]' -o seed=3 "
        "--resume"
    )


def test_the_next_commands_say_where_the_data_is(tiny_recipe):
    config = read_recipe(tiny_recipe())
    assert next_commands(Path("a run"), "my data", config).splitlines() == [
        "  plait evaluate 'a run' --data 'my data'",
        "  plait predict 'a run' --task mood \"Your own sentence.\"",
    ]
    config = read_recipe(tiny_recipe(), [f"tasks.{name}.dev=[]" for name in config.tasks])
    assert next_commands(Path("run"), None, config).splitlines() == [
        '  plait predict run --task mood "Your own sentence."',
    ]


def test_one_update_is_counted_as_one(plait, tiny_recipe, tmp_path):
    done = plait("train", tiny_recipe(), "--out", tmp_path / "run", "-o", "train.max_steps=1")
    assert "dev after 1 update: mood" in done.err
    assert "best after 1 of 1 update; trained" in done.out


def test_scores_of_some_rows_say_so(plait, tiny_recipe, tmp_path):
    words = ["-o", "train.eval_limit=5", "-o", "train.max_steps=2"]
    done = plait("train", tiny_recipe(), "--out", tmp_path / "run", *words)
    assert done.code == 0, done.err
    assert "dev after 2 updates, 5 rows a task at most: mood" in done.err


# --- baselines ---------------------------------------------------------------------------


def test_the_best_baseline_and_what_does_not_beat_it(capsys):
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
    }
    show_outcome(result, {}, tasks)  # of an earlier version
    out = capsys.readouterr().out
    assert [line.split()[2] for line in out.splitlines()[1:4]] == ["baseline", ".500", ".500"]
    assert "note:" not in out
    figures = {"majority class": 0.5, "frozen vectors + regression": 0.675, "nothing": None}
    result["baselines"] = {"low": figures, "high": figures}
    show_outcome(result, {}, tasks)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines[1:4]] == ["baseline", ".675", ".675"]
    assert lines[4] == (
        "note: low: the model (.642) does not beat frozen vectors + regression (.675) on 300 dev "
        'rows: try more epochs (train.epochs), head = "regression", a lower train.lr or the task '
        "alone (--each-alone)"
    )
    assert lines[5] == ""


# --- from a run --------------------------------------------------------------------------


def test_from_a_run(plait, tiny_run, tmp_path):
    """The old tasks' figures stand beside the new ones, and the command to resume says --from."""
    recipe = tmp_path / "more.toml"
    recipe.write_text("name = 'more'\n[tasks.mood]\n[train]\nmax_steps = 1\n", encoding="utf-8")
    done = plait("train", recipe, "--from", tiny_run, "--out", tmp_path / "out")
    assert done.code == 0, done.err
    header, *rows = [line.split() for line in done.out.splitlines()[1:5]]
    assert header == ["task", "figure", "baseline", "before", "trained", "difference"]
    assert [row[0] for row in rows] == ["mood", "same", "near"]
    before, after = float(rows[0][3]), float(rows[0][4])
    assert float(rows[0][5]) == pytest.approx(after - before, abs=0.0015)
    assert "--task mood" in done.out
    again = plait("train", recipe, "--from", tiny_run, "--out", tmp_path / "out")
    assert f"--from {tiny_run} --resume" in again.complaint()


def test_from_what_is_no_run(plait, tiny_recipe, tmp_path):
    done = plait("train", tiny_recipe(), "--from", "nowhere", "--out", tmp_path / "out")
    assert done.code == 2
    assert done.complaint() == "there is no run at nowhere to start from"
    assert not (tmp_path / "out").exists()


def test_a_plan_from_a_run(plait, tiny_run, tmp_path):
    recipe = tmp_path / "more.toml"
    recipe.write_text("name = 'more'\n[tasks.mood]\n[train]\nepochs = 1\n", encoding="utf-8")
    done = plait("plan", recipe, "--from", tiny_run)
    assert done.code == 0, done.err
    assert "mood" in done.out
    assert "near" not in done.out
