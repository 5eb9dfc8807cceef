"""Several runs at once, in processes of this machine: finished, failed, stopped."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from types import SimpleNamespace

import pytest

import plait
from plait.config import read_recipe
from plait.errors import DiskFullError, Interrupted, ResourceError, RunError, WorkerLostError
from plait.scale import Engine
from plait.scale.hiring import hired
from plait.scale.processes import ProcessCrew
from plait.scale.running import (
    Place,
    RunJob,
    Runs,
    Teller,
    find_needs,
    train_run,
    train_runs,
)
from plait.training.checkpoint import load_state

LONG = ["train.epochs=2000", "log_every=1", "save_every=5"]

BROKEN = """
from plait.methods.regularizers import REGULARIZERS, Regularizer

@REGULARIZERS.register("broken")
class Broken(Regularizer):
    '''A mistake of whoever wrote it.'''

    def __call__(self, model, task, batch, outputs, loss):
        return [][7]
"""

FULL = """
import errno

from plait.training.listeners import LISTENERS, Listener

@LISTENERS.register("full")
class Full(Listener):
    '''The disk is full when the first update is told.'''

    def step(self, record):
        raise OSError(errno.ENOSPC, "No space left on device")
"""


@pytest.fixture
def notes():
    return []


@pytest.fixture
def crew(notes):
    crew = ProcessCrew(2, notes.append)
    yield crew
    crew.close()


def wait_until(something):
    end = time.monotonic() + 60
    while not something():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def count_updates(run):
    path = run / "checkpoint.safetensors"
    return load_state(path).total_steps if path.exists() else 0


def begin(crew, recipe, run):
    """Begin a long run, and wait until it has saved something."""
    crew.start("long", train_run, RunJob(read_recipe(recipe, LONG), run, None, "again"))
    wait_until(lambda: count_updates(run))


def test_one_that_fails_ends_the_others(crew, tiny_recipe, tmp_path, notes):
    recipe, long = tiny_recipe(), tmp_path / "long"
    begin(crew, recipe, long)
    wanted = {"wrong": (read_recipe(recipe, ["device=cuda:7"]), tmp_path / "wrong")}
    with pytest.raises(RunError, match=r"^wrong: device = 'cuda:7' cannot be used here"):
        train_runs(Runs(wanted, None, "again"), crew, note=notes.append)
    assert crew.names() == []
    assert notes == ["training 1 run, 1 at once: wrong"]


def test_a_full_disk_is_told_as_by_a_run_of_its_own(crew, tiny_recipe, tmp_path):
    (tmp_path / "full.py").write_text(FULL)
    settings = [f"plugins=['{tmp_path / 'full.py'}']", "listeners=[{name='full'}]"]
    config, out = read_recipe(tiny_recipe(), settings), tmp_path / "out"
    with pytest.raises(DiskFullError) as alone:
        plait.train(config, out)
    with pytest.raises(ResourceError) as among_others:
        train_runs(Runs({"some": (config, out)}, None, "again"), crew)
    assert str(among_others.value) == f"some: {alone.value}"
    assert among_others.value.exit_code == alone.value.exit_code == 1


def test_where_failures_are_noted_the_others_go_on(crew, tiny_recipe, tmp_path, notes):
    recipe = tiny_recipe()
    (tmp_path / "broken.py").write_text(BROKEN)
    settings = [f"plugins=['{tmp_path / 'broken.py'}']", "train.regularizers=[{name='broken'}]"]
    wanted = {
        "broken": (read_recipe(recipe, settings), tmp_path / "broken"),
        "good": (read_recipe(recipe, ["train.max_steps=2"]), tmp_path / "good"),
        "gone": (read_recipe(recipe, ["data.root=/nowhere/at/all"]), tmp_path / "gone"),
    }
    heard: list[str] = []
    failed: dict[str, str] = {}
    runs = Runs(wanted, None, "again")
    train_runs(runs, crew, hear=heard.append, note=notes.append, failed=failed)
    assert heard == ["good"]
    assert failed.keys() == {"broken", "gone"}
    assert failed["broken"] == "IndexError: list index out of range"
    assert failed["gone"].startswith("there is no data folder /nowhere/at/all")
    (crash,) = [note for note in notes if "Traceback" in note]  # a mistake can be found by it
    assert crash.startswith("broken met an error that nobody foresaw:\nTraceback")
    assert "return [][7]" in crash
    assert "broken failed: IndexError: list index out of range" in notes
    assert [note for note in notes if note.startswith("good is done")]
    notes.clear()
    again = Runs({"good": wanted["good"]}, None, "again")
    train_runs(again, crew, hear=heard.append, note=notes.append)
    assert heard == ["good", "good"]  # it is finished, and was not trained again
    assert notes == []


def test_a_stop_saves_what_a_ctrl_c_has_reached_before(crew, tiny_recipe, tmp_path):
    """A terminal sends it to all processes at once; being told a second time must not hurt."""
    begin(crew, tiny_recipe(), tmp_path / "long")
    (process,) = multiprocessing.active_children()
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.001)
    crew.stop()
    ((name, message, is_last),) = crew.hear()
    assert (name, message[0], is_last) == ("long", "stopped", True)
    assert message[1].startswith(f"stopped after {count_updates(tmp_path / 'long'):,} update")
    assert message[1].endswith("Go on with: again")


@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL here")
def test_one_that_is_killed_is_no_mistake_of_the_user(crew, tiny_recipe, tmp_path):
    run = tmp_path / "long"
    runs = Runs({"long": (read_recipe(tiny_recipe(), LONG), run)}, None, "plait again")

    def kill():
        wait_until(lambda: count_updates(run))
        (process,) = multiprocessing.active_children()
        process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(WorkerLostError, match=r"^long: .* killed.*; go on with: plait again$"):
        train_runs(runs, crew)
    killer.join()


def test_a_polite_kill_saves_however_often_it_comes_and_says_how_to_go_on(tiny_recipe, tmp_path):
    run = tmp_path / "long"
    settings = [*LONG, "save_every=100000", "train.eval_every=100000"]
    runs = Runs({"long": (read_recipe(tiny_recipe(), settings), run)}, None, "plait again")
    before = signal.getsignal(signal.SIGTERM)

    def kill():
        log = run / "metrics.jsonl"
        wait_until(lambda: log.exists() and log.stat().st_size)  # it has made an update
        for _ in range(3):
            for process in multiprocessing.active_children():
                process.terminate()  # as whoever kills a group does
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.002)

    with hired(Engine(), 1, runs.folder(), print) as crew:
        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(Interrupted, match=r"^stopped; go on with: plait again$"):
            train_runs(runs, crew)
        killer.join()
    assert count_updates(run)
    assert multiprocessing.active_children() == []
    assert signal.getsignal(signal.SIGTERM) is before


def test_runs_tell_how_far_they_are_and_can_be_stopped_while_they_do(crew, tiny_recipe, tmp_path):
    run = tmp_path / "long"
    job = RunJob(read_recipe(tiny_recipe(), LONG), run, None, "again", tell_after=0.0)
    crew.start("long", train_run, job)
    places: list[Place] = []

    def watch(name, place):
        assert name == "long"
        places.append(place)
        if len(places) == 3:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"^stopped"):
        train_runs(Runs({}, None, "again"), crew, watch=watch)
    assert crew.names() == []
    assert count_updates(run) >= 4  # it has saved what it had, though it was telling all the time
    assert [(place.stage, place.step) for place in places] == [("finetune", n) for n in (2, 3, 4)]
    assert all(place.num_steps == 24_000 and place.seconds_left > 0 for place in places)


def test_the_time_left_is_that_of_this_sitting_and_stage(monkeypatch):
    told: list[Place] = []
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("plait.scale.running.time.monotonic", lambda: clock.now)
    teller = Teller(lambda message: told.append(message[1]), 20.0)
    for stage, step, now in (
        ("first", 100, 5.0),  # where it goes on
        ("first", 101, 6.0),
        ("first", 120, 25.0),
        ("first", 121, 26.0),
        ("second", 1, 50.0),
        ("second", 11, 55.0),
    ):
        clock.now = now
        teller.step(SimpleNamespace(stage=stage, step=step, num_steps=200))
    assert told == [Place("first", 120, 200, 80.0), Place("second", 11, 200, 94.5)]


def test_a_stop_before_anything_is_written_says_so(crew, tiny_recipe, tmp_path):
    runs = Runs({"long": (read_recipe(tiny_recipe()), tmp_path / "long")}, None, "plait again")

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"^stopped; nothing was written$"):
        train_runs(runs, crew, note=interrupt)


def test_what_runs_need_is_found_in_their_recipes(tiny_recipe, tiny_encoder, tmp_path):
    here, there = (read_recipe(tiny_recipe(), [f"device={name}"]) for name in ("cpu", "auto"))
    assert not find_needs([here], None).gpu
    assert find_needs([here, there], None).gpu
    assert {tiny_encoder, tmp_path} <= set(find_needs([here], str(tmp_path)).paths)
