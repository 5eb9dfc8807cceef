"""Trials, tried: what is found, kept, resumed, pruned and left behind."""

from __future__ import annotations

import csv
import multiprocessing
from dataclasses import replace

import pytest

from plait.config import read_recipe
from plait.errors import Interrupted, RunError
from plait.inference.predictor import Predictor
from plait.scale.processes import ProcessPool
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", [(ProcessPool, "start"), (_Session, "_hear_figure")], ids=["begun", "asking"]
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_failed_trial_is_recorded_and_the_search_goes_on(search):
    # More than the encoder has positions for, which only building it can tell.
    trials = run_search(search('"encoder.max_length" = {values = [32, 4096]}', num_trials=4))
    assert trials[0].state == "done"
    failed = [trial for trial in trials if trial.state == "failed"]
    assert failed
    assert all("reads at most 48 tokens" in trial.note for trial in failed)
    assert len(trials) == 4
