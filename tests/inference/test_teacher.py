"""What is asked of a teacher, and in which order."""

from __future__ import annotations

import fcntl
from contextlib import ExitStack, contextmanager

import numpy as np
from safetensors.torch import load_file

import plait
import plait.inference.teacher
from plait.config import read_recipe
from plait.data.cache import is_underway
from plait.data.locks import is_taken


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


def test_what_another_asks_comes_last(tiny_run, tiny_recipe, tmp_path, monkeypatch):
    """And is waited for, not asked again."""
    teacher = tiny_run
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
    kind = f"stage.distill.kind={{name='distill', teacher='{teacher}'}}"
    settings = ["train.max_steps=1", "stages=['distill']", kind]
    plait.train(read_recipe(tiny_recipe(), settings), tmp_path / "student")
    kept = load_file(tmp_path / "student" / "teacher" / "distill.safetensors")
    assert order == ["same", "near", "mood"]
    model = plait.load(teacher, precision="auto")
    rows = model.load_split("train")
    for task, answers in kept.items():
        np.testing.assert_array_equal(answers.numpy(), model.answer(task, rows[task]))
