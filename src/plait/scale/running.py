"""Recipes become runs wherever a crew's workers are, as many at once as it has places."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plait.config import flatten
from plait.data import find_root, sample_root
from plait.errors import DataError, Interrupted, ResourceError, RunError, WorkerLostError
from plait.inference.folders import RunFolder, take_lock
from plait.scale.crew import ANYTHING, DONE, LOST, SPENT, Needs
from plait.training.listeners import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plait.config import RunConfig
    from plait.scale.crew import Crew, Message, Tell
    from plait.training.loop import StepRecord

PATIENCE_S = 120.0
"""Seconds that an update and a checkpoint after it may take."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs to be trained, and what they have in common."""

    wanted: Mapping[str, tuple[RunConfig, Path]]
    """Recipe and folder of each."""
    data: str | None
    command: str
    """What the user would go on with."""

    def unfinished(self) -> list[str]:
        """Name those that have no scores yet."""
        found = self.wanted.items()
        return [name for name, (_, out) in found if not RunFolder(out).scores.exists()]

    def use_gpu(self) -> bool:
        """Say whether any of them works on a GPU where there is one."""
        return any(config.device != "cpu" for config, _ in self.wanted.values())

    def folder(self) -> Path:
        """Return the folder that all of theirs are below."""
        return Path(os.path.commonpath([out.absolute().parent for _, out in self.wanted.values()]))


def train_runs(
    runs: Runs,
    crew: Crew,
    *,
    hear: Callable[[str], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
    watch: Callable[[str, Place], None] = lambda *_: None,
    failed: dict[str, str] | None = None,
) -> None:
    """Train runs into their folders, all places of a crew busy; finished ones stay as they are.

    `hear` is called with the name of each that is done, `note` with sentences on the way, `watch`
    now and then with a run's name and how far it is. One that fails ends the others, which save
    what they have; or, where there is a table of the `failed`, goes into it with the reason, and
    the others go on. So does Ctrl-C end them; a second one at once.
    """
    try:
        try:
            _work_off(runs, crew, hear, note, watch, failed)
        finally:
            _stop(crew)
    except KeyboardInterrupt:
        begun = any(out.exists() for _, out in runs.wanted.values())
        told = f"go on with: {runs.command}" if begun else "nothing was written"
        raise Interrupted(f"stopped; {told}") from None


def _work_off(
    runs: Runs,
    crew: Crew,
    hear: Callable[[str], None],
    note: Callable[[str], None],
    watch: Callable[[str, Place], None],
    failed: dict[str, str] | None,
) -> None:
    wanted = runs.wanted
    waiting = runs.unfinished()
    for name in wanted:
        if name not in waiting:
            hear(name)
    if waiting:
        count = f"{len(waiting)} run{'s' * (len(waiting) > 1)}"
        at_once = min(len(waiting), crew.num_places)
        note(f"training {count}, {at_once} at once: {', '.join(waiting)}")
    done = len(wanted) - len(waiting)
    while waiting or crew.names():
        while waiting and len(crew.names()) < crew.num_places:
            name = waiting.pop(0)
            config, out = wanted[name]
            job = RunJob(config, out.absolute(), runs.data, runs.command)
            needs = ANYTHING
            with suppress(DataError):  # that its data is not here is for the run to say
                needs = find_needs([config], runs.data)
            crew.start(name, train_run, job, needs)
        for name, (word, *reason), is_last in crew.hear():
            if not is_last:
                crew.answer(name, None)
                watch(name, *reason)
                continue
            done += 1
            if word == DONE:
                note(f"{name} is done, {done} of {len(wanted)}")
                hear(name)
            elif failed is not None:
                failed[name] = reason[0]
                note(f"{name} failed: {reason[0]}")
            elif word == LOST:
                raise WorkerLostError(f"{name}: {reason[0]}; go on with: {runs.command}")
            elif word == SPENT:
                raise ResourceError(f"{name}: {reason[0]}")
            else:
                raise RunError(f"{name}: {reason[0]}")


def _stop(crew: Crew) -> None:
    """Wait until what is under way has saved itself."""
    with suppress(KeyboardInterrupt):  # a second one leaves it to whoever closes the crew
        crew.stop()
        while crew.names():
            for name, _, is_last in crew.hear():
                if not is_last:  # a run that waits for an answer cannot end
                    crew.answer(name, None)


# --- where a run is trained --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunJob:
    """One run to be trained."""

    config: RunConfig
    folder: Path
    data: str | None
    command: str
    tell_after: float = 20.0
    """Seconds until it tells again how far it is."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far a run is."""

    stage: str
    step: int
    num_steps: int
    """Of the stage."""
    seconds_left: float
    """Until the stage ends, if it goes on as in this sitting."""


class Teller(Listener):
    """Tells how far a run is, now and then, to whoever waits for several."""

    def __init__(self, tell: Tell, after: float):
        self._tell, self._after = tell, after
        self._told = time.monotonic()
        self._stage = ""
        self._first = 0
        """The stage's first update of this sitting."""
        self._began = self._told

    def step(self, record: StepRecord) -> None:
        """Tell where it has been a while."""
        now = time.monotonic()
        if record.stage != self._stage:
            self._stage, self._first, self._began = record.stage, record.step, now
        elif now - self._told >= self._after:
            self._told = now
            pace = (now - self._began) / (record.step - self._first)
            left = pace * (record.num_steps - record.step)
            self._tell(("under way", Place(record.stage, record.step, record.num_steps, left)))


def train_run(tell: Tell, job: RunJob) -> Message:
    """Train a run, or go on with it."""
    from plait.training.runs import train

    wait_until_free(RunFolder(job.folder))
    train(
        job.config,
        job.folder,
        data=job.data,
        resume=job.folder.exists(),
        command=job.command,
        listeners=[Teller(tell, job.tell_after)],
    )
    return (DONE,)


def find_needs(configs: Sequence[RunConfig], data: str | None) -> Needs:
    """Return what runs of some recipes need: the places of this machine that they read, a GPU."""
    found: set[Path] = set()
    for config in configs:
        root = find_root(config.data, data)
        found |= {Path.cwd() if root is None else root.absolute()} - {sample_root()}
        for value in flatten(config.model_dump(mode="json", exclude_none=True)).values():
            named = value if isinstance(value, list) else [value]
            paths = (Path(word) for word in named if isinstance(word, str) and word[:1] == "/")
            found |= {path for path in paths if path.exists()}
    return Needs(tuple(sorted(found)), any(config.device != "cpu" for config in configs))


def wait_until_free(folder: RunFolder) -> None:
    """Wait until the process of a worker that was lost has saved its run and is gone."""
    end = time.monotonic() + PATIENCE_S
    while folder.lock.exists():
        with folder.lock.open("a") as file:
            try:
                take_lock(file, folder)
            except RunError:
                if time.monotonic() > end:
                    raise
            else:
                return
        time.sleep(0.1)
