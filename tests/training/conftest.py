"""Ways to break a run and to compare what it left."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from plait.config import read_recipe
from plait.registry import FAMILIES
from plait.training.checkpoint import load_state
from plait.training.graphs import Graphs
from plait.training.listeners import Listener
from plait.training.run import Outcome
from plait.training.runs import train


class Recorder(Graphs):
    """Graphs whose captures run on a CPU: everything is done again on the captured memory."""

    room = True

    def _prepare(self) -> None:
        self.recorded: list[int] = []

    def _has_room(self) -> bool:
        return self.room and self.num_captures < self._limit

    def _off_default_stream(self) -> Any:
        return nullcontext()

    def _recover(self) -> None:
        pass

    def _record(
        self, function: Callable[..., Any], inputs: tuple[Tensor, ...]
    ) -> tuple[Callable[[], None], Any]:
        outputs = function(*inputs)
        self.recorded.append(len(inputs))
        done = True  # a capture does nothing yet; here its first replay has been done

        def replay() -> None:
            nonlocal done
            if done:
                done = False
                return
            for place, out in zip(outputs, function(*inputs), strict=True):
                if place is not None:
                    place.copy_(out)

        return replay, outputs


@pytest.fixture
def recorder() -> type[Recorder]:
    """What captures without a GPU."""
    return Recorder


class Crash(BaseException):
    """What no code of plait's catches, like a kill."""


class CrashAfter(Listener):
    """Ends the run right after each of the updates named, once, before anything is saved."""

    def __init__(self, *steps: int):
        self.steps = set(steps)

    def step(self, record):
        if record.total_steps in self.steps:
            self.steps.remove(record.total_steps)
            raise Crash


class Spy(Listener):
    """Remembers what it heard."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.scored: list[tuple[int, str, dict]] = []
        self.steps: list[int] = []
        self.closed = 0

    def note(self, text):
        self.notes.append(text)

    def scores(self, step, split, scores):
        self.scored.append((step, split, scores))

    def step(self, record):
        self.steps.append(record.total_steps)

    def close(self):
        self.closed += 1


class Runs:
    """Runs recipes and reads what they left."""

    Crash, CrashAfter, Spy = Crash, CrashAfter, Spy

    def __init__(self, recipe: Path, folder: Path, whole: Callable[..., Path]):
        self.recipe, self.folder, self._whole = recipe, folder, whole

    def train(self, out: str, *overrides: str, **options: Any) -> Outcome:
        """Train the tiny recipe in a folder of its own."""
        return train(read_recipe(self.recipe, overrides), self.folder / out, **options)

    def train_broken(self, out: str, *overrides: str, crashes: tuple[int, ...]) -> Outcome:
        """Train, crash after every update named, and resume as often as it takes."""
        crash, sittings = CrashAfter(*crashes), 0
        while True:
            begun = (self.folder / out).exists()
            try:
                outcome = self.train(out, *overrides, resume=begun, listeners=[crash])
            except Crash:
                sittings += 1
                assert sittings <= len(crashes)
            else:
                assert sittings == len(crashes), f"never came to {crash.steps}"
                return outcome

    def log(self, out: str) -> list[dict[str, Any]]:
        """Read metrics.jsonl."""
        text = (self.folder / out / "metrics.jsonl").read_text(encoding="utf-8")

        def refuse(name: str) -> None:
            raise AssertionError(f"{name} is no JSON")

        return [json.loads(line, parse_constant=refuse) for line in text.splitlines()]

    def whole(self, *overrides: str) -> Path:
        """Return an uninterrupted run of the tiny recipe, trained once a session: do not change it.

        Its recipe and data are the tiny recipe's, in another folder.
        """
        return self._whole(*overrides)

    def check_whole(self, out: str, *overrides: str) -> None:
        """Check that a run equals the uninterrupted one."""
        self.check_equal(out, str(self.whole(*overrides)))

    def check_equal(self, one: str, other: str) -> None:
        """Two runs left the same, bit by bit, but for the time they took."""
        a, b = self.folder / one, self.folder / other
        assert (a / "model.safetensors").read_bytes() == (b / "model.safetensors").read_bytes()
        assert_same_tensors(a / "checkpoint.safetensors", b / "checkpoint.safetensors")
        assert (a / "metrics.jsonl").read_bytes() == (b / "metrics.jsonl").read_bytes()
        states = [load_state(run / "checkpoint.safetensors").to_json() for run in (a, b)]
        scores = [json.loads((run / "scores.json").read_text()) for run in (a, b)]
        for values in (*states, *scores):
            values.pop("seconds")
        assert states[0] == states[1]
        assert scores[0] == scores[1]
        assert sorted(p.name for p in a.iterdir()) == sorted(p.name for p in b.iterdir())


def assert_same_tensors(one: Path, other: Path) -> None:
    a, b = load_file(one), load_file(other)
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


@pytest.fixture(autouse=True)
def _own_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the parts that a test's plugins register."""
    for family in FAMILIES.values():
        monkeypatch.setattr(family, "_parts", dict(family._parts))


@pytest.fixture
def runs(tiny_recipe: Callable[..., Path], tmp_path: Path, train_once: Callable[..., Path]) -> Runs:
    """The tiny recipe and a folder for its runs."""
    (tmp_path / "runs").mkdir()
    return Runs(tiny_recipe(), tmp_path / "runs", train_once)


@pytest.fixture
def copy_run(runs: Runs, tiny_run: Path) -> Callable[[str], Path]:
    """Copy the finished tiny run to a folder of this test's runs, as a run of its own recipe."""

    def copy(out: str) -> Path:
        folder = shutil.copytree(tiny_run, runs.folder / out)
        runs.recipe = tiny_run.parent / "tiny" / "recipe.toml"
        return folder

    return copy
