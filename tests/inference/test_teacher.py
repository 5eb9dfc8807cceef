"""What is asked of a teacher, and in which order."""

from __future__ import annotations

import fcntl
import json
from contextlib import ExitStack, contextmanager

import numpy as np
import pytest
from safetensors.torch import load_file

import plait
import plait.inference.teacher
from plait.config import read_recipe
from plait.data.cache import is_underway
from plait.data.locks import is_taken
from plait.inference.ensemble import make_ensemble
from plait.training.listeners import Listener


@pytest.fixture
def run(tiny_recipe, tmp_path):
    recipe = tiny_recipe()

    def start(out, *overrides, **options):
        return plait.train(read_recipe(recipe, overrides), tmp_path / out, **options).folder

    return start


@pytest.fixture
def student(run):
    """Train a student of a folder, with more settings of its kind."""

    def start(out, teacher, *listeners, **settings):
        table = {"name": "distill", "teacher": str(teacher), **settings}
        words = ", ".join(f"{key}={json.dumps(value)}" for key, value in table.items())
        kind = f"stage.distill.kind={{{words}}}"
        return run(out, "train.epochs=1", "stages=['distill']", kind, listeners=listeners)

    return start


class Heard(Listener):
    """Keeps what is said of the asking."""

    def __init__(self):
        self.told = []

    def asking(self, task, done, total):
        self.told.append((task, done, total))


@contextmanager
def busy(place):
    """Have the turn at some work, as another process would."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
        place.unlink()


def test_who_has_a_lock(tmp_path):
    place = tmp_path / ".lock-x"
    assert not is_taken(place)
    assert not place.exists()
    with busy(place):
        assert is_taken(place)
        assert is_underway(tmp_path / "x")
        assert not is_underway(tmp_path / "y")
    place.touch()  # left behind by one that is gone
    assert not is_taken(place)


def test_what_another_asks_comes_last(run, student, monkeypatch):
    """And is waited for, not asked again."""
    teacher = run("teacher")
    order, other = [], ExitStack()
    ask, put = plait.inference.teacher._ask, plait.inference.teacher._put

    def watch(question, tell):
        order.append(question.task)
        if len(order) == 3:  # the other student is done with it
            other.close()
        return ask(question, tell)

    def first_is_busy(model, task, rows, *, each_member):
        asked = put(model, task, rows, each_member=each_member)
        if task == "mood":
            entry = asked[0].entry
            other.enter_context(busy(entry.parent / f".lock-{entry.name}"))
        return asked

    monkeypatch.setattr("plait.inference.teacher._ask", watch)
    monkeypatch.setattr("plait.inference.teacher._put", first_is_busy)
    kept = load_file(student("student", teacher) / "teacher" / "distill.safetensors")
    assert order == ["same", "near", "mood"]
    model = plait.load(teacher, precision="auto")
    rows = model.load_split("train")
    for task, answers in kept.items():
        np.testing.assert_array_equal(answers.numpy(), model.answer(task, rows[task]))


@pytest.mark.parametrize("unseen", [False, True])
def test_progress_is_of_rows_whoever_answers_them(run, student, tmp_path, unseen):
    folds = [f"data.fold={i}" for i in (1, 2)]
    members = [
        run(f"m{i}", "data.folds=2", fold, "data.leave_out=true") for i, fold in enumerate(folds)
    ]
    both = make_ensemble(members, tmp_path / "both", "mean")
    heard = Heard()
    place = student("student", both, heard, unseen=unseen)
    rows = {task: len(a) for task, a in load_file(place / "teacher/distill.safetensors").items()}
    told = {task: [t[1:] for t in heard.told if t[0] == task] for task in rows}
    for task, count in rows.items():
        done = [one for one, _ in told[task]]
        assert {total for _, total in told[task]} == {count}
        assert done == sorted(done)
        assert done[-1] == count
