"""What a run refuses, in which words, and that it leaves everything as it was."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from plait.errors import DataError, DeviceMemoryError, RecipeError, RunError
from plait.inference.folders import RunFolder
from plait.methods.schedules import SCHEDULES, Schedule
from plait.training.listeners import Listener
from plait.training.step import Step

# --- folders, recipes, data --------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.is_file()}


def test_a_finished_run_is_not_touched(runs, copy_run):
    folder = copy_run("a")
    before = contents(folder)
    with pytest.raises(RunError, match="exists already and is not overwritten"):
        runs.train("a")
    with pytest.raises(RunError, match="continue with `plait train mine --resume`"):
        runs.train("a", "seed=3", command="plait train mine --resume")
    spy = runs.Spy()
    assert runs.train("a", resume=True, listeners=[spy]).folder == folder
    assert not spy.steps
    assert contents(folder) == before


def test_a_folder_with_anything_in_it_is_not_touched(runs):
    (runs.folder / "a").mkdir()
    (runs.folder / "a" / "thesis.txt").write_text("mine")
    (runs.folder / "b").write_text("a file")
    (runs.folder / "c").mkdir()
    (runs.folder / "c" / "recipe.toml").write_text('name = "drafted"')
    for out in ("a", "b", "c"):  # none is a run, so there is none to go on with
        with pytest.raises(RunError, match="exists already and is not overwritten; choose another"):
            runs.train(out)
    with pytest.raises(RunError, match=r"is not a run: it has no recipe\.toml"):
        runs.train("a", resume=True)
    assert [p.name for p in (runs.folder / "a").iterdir()] == ["thesis.txt"]
    with pytest.raises(RunError, match=r"there is no run at .*; leave out --resume to start one"):
        runs.train("d", resume=True)
    with pytest.raises(RunError, match=r"cannot write in .*b/a: .*; choose another --out"):
        runs.train("b/a")


@pytest.mark.parametrize("part", ["aggregator='pcgrad'", "weighting='famo'"])
def test_a_part_that_compares_tasks_needs_updates_of_several(runs, part):
    one = f"{part.replace('=', ' = ')} .* each update of schedule '{{}}' has only one task"
    with pytest.raises(RecipeError, match=one.format("round-robin")):
        runs.train("a", f"train.{part}", "train.schedule='round-robin'")
    # Turns add up inside an epoch only, and each of these epochs is one task's.
    with pytest.raises(RecipeError, match=one.format("by-epoch")):
        runs.train("a", f"train.{part}", "train.schedule='by-epoch'", "train.accumulate=4")
    assert not (runs.folder / "a").exists()


@pytest.fixture
def schedule(monkeypatch):
    """Register a schedule that yields the given turns, epoch by epoch; the last epoch repeats."""

    def register(*epochs: list) -> str:
        class Given(Schedule):
            """Yields the given turns."""

            def epoch(self, sizes, epoch, num_epochs, generator):
                yield from epochs[min(epoch, len(epochs) - 1)]

        monkeypatch.setitem(SCHEDULES._parts, "given", Given)
        return "train.schedule='given'"

    return register


@pytest.mark.parametrize(
    ("turns", "match"),
    [
        (["mood", "same"], r"a turn is a tuple of tasks, not 'mood': yield \('mood',\)"),
        ([("mood", "sme")], r"names 'sme'; did you mean 'same'"),
        ([("mood", "mood")], "names a task twice: mood, mood"),
        ([()], "yields a turn without a task"),
        ([], "contains no turns"),
    ],
)
def test_a_users_schedule_that_yields_no_turns_is_refused(runs, schedule, turns, match):
    with pytest.raises(RecipeError, match=rf"stage\.finetune\.schedule: .*{match}"):
        runs.train("a", schedule(turns))
    assert not (runs.folder / "a").exists()


def test_surgery_that_begins_in_a_later_epoch_is_not_refused(runs, schedule):
    """An empty folder, or one whose run ended before its recipe was written, is free."""
    (runs.folder / "a").mkdir()
    (runs.folder / "a" / ".lock").touch()
    (runs.folder / "a" / ".recipe.toml.123.tmp").write_text("name = ")
    given = schedule([("mood",)], [("mood", "same")])
    settings = [given, "train.aggregator='pcgrad'", "train.epochs=2"]
    assert runs.train("a", *settings).result["steps"] == 2
    assert not list((runs.folder / "a").glob(".recipe*"))


def test_resuming_with_another_recipe_data_or_encoder_is_refused(runs, tiny_encoder, tmp_path):
    own = tmp_path / "own-encoder"
    own.mkdir()
    for path in tiny_encoder.iterdir():
        (own / path.name).write_bytes(path.read_bytes())
    settings = ["save_every=2", f"encoder.source={str(own)!r}"]
    with pytest.raises(runs.Crash):
        runs.train("a", *settings, listeners=[runs.CrashAfter(5)])
    before = contents(runs.folder / "a")
    with pytest.raises(RunError) as caught:
        runs.train("a", *settings, "train.lr=0.5", "tasks.mood.weight=2", resume=True)
    assert "was started with another recipe" in str(caught.value)
    assert "train.lr: 0.003 -> 0.5" in str(caught.value)
    assert "tasks.mood.weight: 1.0 -> 2" in str(caught.value)
    others = [f"train.{key}=7" for key in ("epochs", "batch_size", "lr", "clip", "max_steps")]
    with pytest.raises(RunError, match=r"and 1 more\)"):
        runs.train("a", *settings, *others, "seed=1", resume=True)

    data = runs.recipe.parent / "mood-train.csv"
    old = data.read_bytes()
    data.write_bytes(old.replace(b"film", b"book"))
    with pytest.raises(RunError, match=r"the train data of mood changed since .* was started"):
        runs.train("a", *settings, resume=True)
    data.write_bytes(old)

    for name, change in (
        ("model.safetensors", lambda data: data[:-1] + bytes([data[-1] ^ 1])),
        ("config.json", lambda data: data.replace(b"0.1", b"0.3")),
    ):
        whole = (own / name).read_bytes()
        (own / name).write_bytes(change(whole))
        with pytest.raises(RunError, match=r"the encoder changed since .* was started"):
            runs.train("a", *settings, resume=True)
        (own / name).write_bytes(whole)
    assert contents(runs.folder / "a") == before


def test_bad_data_leaves_no_folder(runs):
    data = runs.recipe.parent / "same-dev.csv"
    lines = data.read_text().splitlines()
    lines[3] = lines[3][:-1] + "maybe"
    data.write_text("\n".join(lines))
    spy = runs.Spy()
    with pytest.raises(DataError, match=r"same-dev\.csv, line 4"):
        runs.train("a", listeners=[spy])
    assert spy.closed == 1
    with pytest.raises(RecipeError, match="did you mean 'pcgrad'"):
        runs.train("a", "train.aggregator='pcgrd'")
    assert not (runs.folder / "a").exists()


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(os.name != "posix", reason="locks are POSIX's")
def test_a_run_that_another_process_trains(runs):
    class Second(Listener):
        def step(self, record):
            if record.step == 3:
                with pytest.raises(RunError, match="is being trained by another process"):
                    runs.train("a", "save_every=2", resume=True)

    with pytest.raises(runs.Crash):
        runs.train("a", "save_every=2", listeners=[Second(), runs.CrashAfter(5)])
    before = contents(runs.folder / "a")
    words = [sys.executable, "-c", HOLDER, str(runs.folder / "a" / ".lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(RunError, match="is being trained by another process"):
            runs.train("a", "save_every=2", resume=True)
        holder.communicate()
    assert contents(runs.folder / "a") == before
    runs.train("a", "save_every=2", resume=True)  # the lock ends with its process
    runs.check_whole("a")


def test_two_that_start_at_once_do_not_mix(runs):
    """The folder was free when the second looked, and is taken once it has read its data."""

    class First(Listener):
        done = False

        def reading(self, what, done, total):
            if not self.done:
                self.done = True
                with suppress(runs.Crash):
                    runs.train("a", "seed=1", listeners=[runs.CrashAfter(3)])

    with pytest.raises(RunError, match="exists already"):
        runs.train("a", "seed=2", listeners=[First()])
    assert RunFolder(runs.folder / "a").read_config().seed == 1


# --- memory ------------------------------------------------------------------------------

CPU_MEMORY = (
    "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: you tried "
    "to allocate 99 bytes. Error code 12 (Cannot allocate memory)"
)


def fail_after(monkeypatch, steps: int, error: Exception) -> None:
    original, calls = Step.__call__, []

    def call(self, turns):
        calls.append(1)
        if len(calls) > steps:
            raise error
        return original(self, turns)

    monkeypatch.setattr(Step, "__call__", call)


def test_out_of_memory_names_a_batch_size_to_try(runs, monkeypatch):
    fail_after(monkeypatch, 5, RuntimeError(CPU_MEMORY))
    with pytest.raises(DeviceMemoryError) as caught:
        runs.train("a", "save_every=2", "train.accumulate=2", command="plait train x --resume")
    assert str(caught.value) == (
        "out of memory at batch size 12: try -o train.batch_size=6 -o train.accumulate=4 (with a "
        "new --out; the last checkpoint of this run is kept: plait train x --resume)"
    )


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        (["tasks.same.batch_size=16"], "batch size 16: try -o tasks.same.batch_size=8 (with"),
        (
            ["stage.finetune.batch_size=8"],
            "try -o stage.finetune.batch_size=4 -o stage.finetune.accumulate=2",
        ),
        (["train.batch_size=1"], "batch size 1: try -o encoder.max_length=16"),
    ],
)
def test_the_advice_would_change_what_is_too_large(runs, monkeypatch, settings, hint):
    fail_after(monkeypatch, 0, torch.OutOfMemoryError("CUDA out of memory."))
    with pytest.raises(DeviceMemoryError) as caught:
        runs.train("a", *settings)
    assert hint in str(caught.value)


def test_another_error_is_left_alone(runs, monkeypatch):
    fail_after(monkeypatch, 2, RuntimeError("shapes do not match"))
    spy = runs.Spy()
    with pytest.raises(RuntimeError, match="shapes do not match"):
        runs.train("a", listeners=[spy])
    assert spy.closed == 1
