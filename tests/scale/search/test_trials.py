"""Trials, tried: what is found, kept, resumed, pruned and left behind."""

from __future__ import annotations

import csv
import multiprocessing
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from plait.config import read_recipe
from plait.errors import Interrupted, ResourceError, RunError
from plait.inference.predictor import Predictor
from plait.scale.processes import ProcessCrew
from plait.scale.search import Search, run_search
from plait.scale.search.study import _Session
from plait.training.run import train

optuna = pytest.importorskip("optuna")

TWO = '"train.lr" = {values = [1e-9, 3e-3]}'
RANGE = '"train.lr" = {low = 1e-5, high = 1e-2, log = true}\n"train.warmup" = {values = [0.0, 0.5]}'


class Crash(BaseException):
    """What no code of plait's catches, like a kill."""


class Breaker:
    """Ends the search when a trial begins, once."""

    def __init__(self, number, error):
        self.number, self.error = number, error

    def __call__(self, trial):
        if trial.number == self.number and trial.state == "running":
            self.number = None
            raise self.error


@pytest.fixture
def search(tiny_recipe, tmp_path):
    """Factory: a search of the tiny recipe, in one task to be quick."""
    recipe = tiny_recipe()
    text = recipe.read_text(encoding="utf-8")

    def make(space, out="out", **options):
        recipe.write_text(f"{text}\n[search.space]\n{space}\n", encoding="utf-8")
        quick = ("train.tasks=['mood']", *options.pop("overrides", ()))
        return Search(str(recipe), tmp_path / out, quick, **options)

    return make


def read_trials(out):
    """Read trials.csv, without how long they took."""
    with (out / "trials.csv").open(encoding="utf-8", newline="") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def test_the_better_of_two_values_is_found_and_trains(search, tmp_path, monkeypatch):
    wanted = search(TWO, num_trials=6)
    heard = []
    trials = run_search(wanted, hear=heard.append)
    assert len(trials) == 6
    assert trials[0].settings == {"train.lr": 3e-3}
    assert {trial.settings["train.lr"] for trial in trials} == {1e-9, 3e-3}
    assert trials[0].figure > trials[-1].figure
    # Two were run; the others had the settings of one of them.
    assert sum(trial.state == "running" for trial in heard) == 2
    assert sorted(p.name for p in (wanted.out / "trials").iterdir()) == sorted(
        {trial.folder.name for trial in trials}
    )
    assert {t.note for t in trials if t.note} <= {"settings of trial 1", "settings of trial 2"}
    assert [row["trial"] for row in read_trials(wanted.out)] == list("123456")

    # An ordinary run, without the checkpoint that nothing goes on from.
    best = Predictor.load(trials[0].folder)
    assert best.evaluate("dev").summary["sum"] == pytest.approx(trials[0].figure)
    assert not (trials[0].folder / "checkpoint.safetensors").exists()

    # best.toml extends the recipe, from wherever it is read, and repeats the trial.
    text = (wanted.out / "best.toml").read_text(encoding="utf-8")
    assert 'extends = "../tiny/recipe.toml"' in text
    assert "[tasks" not in text
    monkeypatch.chdir(tmp_path / "tiny")
    config = read_recipe(wanted.out / "best.toml")
    assert (config.name, config.train.lr, config.train.tasks) == ("tiny-best", 3e-3, ("mood",))
    outcome = train(config, tmp_path / "again")
    assert outcome.result["dev"]["summary"]["sum"] == trials[0].figure


@pytest.mark.parametrize("error", [KeyboardInterrupt(), Crash()], ids=["ctrl-c", "kill"])
def test_a_search_that_was_stopped_goes_on_as_if_it_had_not(search, error):
    whole = search(RANGE, "whole", num_trials=3)
    run_search(whole)
    broken = search(RANGE, "broken", num_trials=3)
    with pytest.raises(Interrupted if isinstance(error, KeyboardInterrupt) else Crash):
        run_search(broken, hear=Breaker(2, error))
    assert [row["trial"] for row in read_trials(broken.out)] == ["1"]
    with pytest.raises(RunError, match="exists already"):
        run_search(broken)
    heard = []
    run_search(broken, resume=True, hear=heard.append)
    assert [t.number for t in heard if t.state == "running"] == [2, 3]
    assert read_trials(broken.out) == read_trials(whole.out)
    best = [(s.out / "best.toml").read_text(encoding="utf-8") for s in (whole, broken)]
    assert best[0] == best[1]


@pytest.mark.parametrize(
    "place", [(ProcessCrew, "start"), (_Session, "_hear_figure")], ids=["begun", "asking"]
)
def test_a_ctrl_c_waits_for_no_trial_that_nobody_answers(search, monkeypatch, place):
    wanted = search(RANGE, num_trials=2, num_jobs=2)
    act, calls = getattr(*place), []

    def interrupted(*args):
        calls.append(args)
        answer = act(*args)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return answer

    monkeypatch.setattr(*place, interrupted)
    with pytest.raises(Interrupted, match="every trial is kept"):
        run_search(wanted)
    assert multiprocessing.active_children() == []
    assert [trial.state for trial in run_search(wanted, resume=True)] == ["done", "done"]


def test_more_trials_and_what_may_not_change(search):
    first = search(TWO, num_trials=1)
    run_search(first)
    assert len(run_search(replace(first, num_trials=3), resume=True)) == 3
    with pytest.raises(RunError, match=r"another recipe or space \(.*search\.space"):
        run_search(search(RANGE, "out"), resume=True)
    search(TWO)  # the space as it was
    changed = replace(first, overrides=(*first.overrides, "train.epochs=1"))
    with pytest.raises(RunError, match=r"train\.epochs: 2 -> 1"):
        run_search(changed, resume=True)
    with pytest.raises(RunError, match="no search"):
        run_search(replace(first, out=first.out / "none"), resume=True)


SPELLINGS = {"slash": "teacher/", "absolute": "{}/teacher", "elsewhere": "../teacher"}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_the_teacher_may_be_spelled_otherwise(search, tiny_run, tmp_path, monkeypatch, spelling):
    """A resumed search compares which folder taught its runs, not how that was written."""
    shutil.copytree(tiny_run, tmp_path / "teacher")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)

    def taught_by(teacher, num_trials=1):
        kind = f"train.kind={{name='distill', teacher='{teacher}'}}"
        return search(TWO, num_trials=num_trials, overrides=[kind, "train.max_steps=1"])

    run_search(taught_by("teacher"))
    with pytest.raises(RunError, match=r"train\.kind\.teacher: 'teacher' -> 'other'"):
        run_search(taught_by("other"), resume=True)
    if spelling == "elsewhere":
        monkeypatch.chdir(tmp_path / "other")
    wanted = taught_by(SPELLINGS[spelling].format(tmp_path), num_trials=2)
    assert [trial.state for trial in run_search(wanted, resume=True)] == ["done", "done"]


def test_a_teacher_among_the_values_may_be_spelled_otherwise(
    search, tiny_run, tmp_path, monkeypatch
):
    for name in ("one", "two"):
        shutil.copytree(tiny_run, tmp_path / name)
    monkeypatch.chdir(tmp_path)

    def taught_by(*teachers, num_trials=1):
        kinds = ", ".join(f"{{name = 'distill', teacher = '{teacher}'}}" for teacher in teachers)
        space = f'"train.kind" = {{values = [{kinds}]}}'
        return search(space, num_trials=num_trials, overrides=["train.max_steps=1"])

    run_search(taught_by("one", "two/", "./one"))
    wanted = taught_by(f"{tmp_path}/one", "./two", num_trials=4)
    trials = run_search(wanted, resume=True)
    assert {trial.settings["train.kind"]["teacher"] for trial in trials} <= {"one", "two"}
    assert len(trials) == 4
    with pytest.raises(RunError, match="another recipe or space"):
        run_search(taught_by("two", "one"), resume=True)


def test_a_study_that_cannot_be_written_is_told_in_a_sentence(search):
    wanted = search(TWO, num_trials=1)
    run_search(wanted)
    (wanted.out / "study.db").unlink()
    (wanted.out / "study.db").mkdir()
    told = r"study\.db cannot be written: unable to open .*; mend that, and go on with: again$"
    with pytest.raises(ResourceError, match=told):
        run_search(wanted, resume=True, command="again")


def test_a_trial_behind_the_others_is_pruned(search):
    first = search('"train.lr" = {low = 1e-9, high = 1e-8}', num_trials=1)
    run_search(first)
    study = optuna.load_study(study_name="search", storage=f"sqlite:///{first.out}/study.db")
    for trial in range(5):  # others that were perfect from the start
        lr = {"train.lr": 2e-9 + trial * 1e-10}
        study.add_trial(
            optuna.trial.create_trial(
                params=lr,
                distributions=study.trials[0].distributions,
                value=1.0,
                intermediate_values={1: 1.0, 2: 1.0},
            )
        )
    trials = run_search(replace(first, num_trials=7), resume=True)
    (pruned,) = [trial for trial in trials if trial.state == "pruned"]
    assert (pruned.number, pruned.evaluations) == (7, 1)
    left = {path.name for path in pruned.folder.iterdir()}
    assert "metrics.jsonl" in left
    assert not [name for name in left if name.endswith(".safetensors")]
    (kept,) = [
        t
        for t in run_search(replace(first, num_trials=8, prune=False), resume=True)
        if t.number == 8
    ]
    assert (kept.state, kept.evaluations) == ("done", 2)


def test_a_failed_trial_is_recorded_and_the_search_goes_on(search):
    # More than the encoder has positions for, which only building it can tell.
    trials = run_search(search('"encoder.max_length" = {values = [32, 4096]}', num_trials=4))
    assert trials[0].state == "done"
    failed = [trial for trial in trials if trial.state == "failed"]
    assert failed
    assert all("reads at most 48 tokens" in trial.note for trial in failed)
    assert len(trials) == 4


def test_training_rows_held_out_leave_dev_alone(search):
    wanted = search(TWO, num_trials=2, folds=2, num_runs=2)
    for path in Path(wanted.recipe).parent.glob("*-dev.csv"):
        path.unlink()
    trial = run_search(wanted)[0]
    folds = [trial.folder / "fold-1", trial.folder / "fold-2"]
    figures = []
    for i, folder in enumerate(folds, 1):
        config = read_recipe(folder / "recipe.toml")
        assert (config.data.folds, config.data.fold) == (2, i)
        figures.append(Predictor.load(folder).evaluate("dev").summary["sum"])
    assert trial.figure == pytest.approx(sum(figures) / 2)
    assert trial.evaluations == 4
    assert read_recipe(wanted.out / "best.toml").data.folds is None


def test_trials_at_a_time(search):
    trials = run_search(search(RANGE, num_trials=3, num_jobs=2))
    assert sorted(trial.number for trial in trials) == [1, 2, 3]
    assert {trial.state for trial in trials} == {"done"}


HUNGRY = """
from plait.methods.losses import LOSSES, CrossEntropy

@LOSSES.register("hungry")
class Hungry(CrossEntropy):
    '''Wants more than there is.'''

    def __call__(self, outputs, labels):
        raise MemoryError
"""


def test_a_trial_that_runs_out_of_memory_is_recorded_as_well(search, tmp_path):
    (tmp_path / "hungry.py").write_text(HUNGRY)
    plugin = [f"plugins=['{tmp_path / 'hungry.py'}']"]
    space = '"tasks.mood.loss" = {values = ["cross-entropy", "hungry"]}'
    trials = run_search(search(space, num_trials=4, overrides=plugin))
    failed = [trial for trial in trials if trial.settings["tasks.mood.loss"] == "hungry"]
    assert failed
    assert {trial.state for trial in failed} == {"failed"}
    assert all(trial.note.startswith("out of memory") for trial in failed)
