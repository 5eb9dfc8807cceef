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
from plait.errors import DiskFullError, Interrupted, ResourceError, RunError
from plait.scale import Engine
from plait.scale.factory import open_pool
from plait.scale.processes import ProcessPool
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
def pool(notes):
    pool = ProcessPool(2, notes.append)
    yield pool
    pool.close()


def wait_until(something):
    end = time.monotonic() + 60
    while not something():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def count_updates(run):
    path = run / "checkpoint.safetensors"
    return load_state(path).total_steps if path.exists() else 0


def begin(pool, recipe, run):
    """Begin a long run, and wait until it has saved something."""
    pool.start("long", train_run, RunJob(read_recipe(recipe, LONG), run, None, "again"))
    wait_until(lambda: count_updates(run))


@pytest.mark.slow
def test_one_that_fails_ends_the_others(pool, tiny_recipe, tmp_path, notes):
    recipe, long = tiny_recipe(), tmp_path / "long"
    begin(pool, recipe, long)
    wanted = {"wrong": (read_recipe(recipe, ["device=cuda:7"]), tmp_path / "wrong")}
    with pytest.raises(RunError, match=r"^wrong: device = 'cuda:7' cannot be used here"):
        train_runs(Runs(wanted, None, "again"), pool, note=notes.append)
    assert pool.names() == []
    assert notes == ["training 1 run, 1 at once: wrong"]


def test_a_full_disk_is_told_as_by_a_run_of_its_own(pool, tiny_recipe, tmp_path):
    (tmp_path / "full.py").write_text(FULL)
    settings = [f"plugins=['{tmp_path / 'full.py'}']", "listeners=[{name='full'}]"]
    config, out = read_recipe(tiny_recipe(), settings), tmp_path / "out"
    with pytest.raises(DiskFullError) as alone:
        plait.train(config, out)
    with pytest.raises(ResourceError) as among_others:
        train_runs(Runs({"some": (config, out)}, None, "again"), pool)
    assert str(among_others.value) == f"some: {alone.value}"
    assert among_others.value.exit_code == alone.value.exit_code == 1


@pytest.mark.slow
def test_a_stop_saves_what_a_ctrl_c_has_reached_before(pool, tiny_recipe, tmp_path):
    """A terminal sends it to all processes at once; being told a second time must not hurt."""
    begin(pool, tiny_recipe(), tmp_path / "long")
    (process,) = multiprocessing.active_children()
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.001)
    pool.stop()
    ((name, message, is_last),) = pool.hear()
    assert (name, message[0], is_last) == ("long", "stopped", True)
    assert message[1].startswith(f"stopped after {count_updates(tmp_path / 'long'):,} update")
    assert message[1].endswith("Go on with: again")


@pytest.mark.slow
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

    with open_pool(Engine(), 1, runs.folder(), print) as pool:
        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(Interrupted, match=r"^stopped; continue with: plait again$"):
            train_runs(runs, pool)
        killer.join()
    assert count_updates(run)
    assert multiprocessing.active_children() == []
    assert signal.getsignal(signal.SIGTERM) is before


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


def test_a_stop_before_anything_is_written_says_so(pool, tiny_recipe, tmp_path):
    runs = Runs({"long": (read_recipe(tiny_recipe()), tmp_path / "long")}, None, "plait again")

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"^stopped; nothing was written$"):
        train_runs(runs, pool, note=interrupt)


def test_what_runs_need_is_found_in_their_recipes(tiny_recipe, tiny_encoder, tmp_path):
    here, there = (read_recipe(tiny_recipe(), [f"device={name}"]) for name in ("cpu", "auto"))
    assert not find_needs([here], None).gpu
    assert find_needs([here, there], None).gpu
    assert {tiny_encoder, tmp_path} <= set(find_needs([here], str(tmp_path)).paths)
