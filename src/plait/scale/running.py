"""Train several runs at once in a worker pool."""

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
from plait.scale.pool import ANYTHING, DONE, LOST, SPENT, Needs
from plait.training.listeners import Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plait.config import RunConfig
    from plait.scale.pool import Message, Tell, WorkerPool
    from plait.training.loop import StepRecord

PATIENCE_S = 120.0
"""Time limit in seconds for an update and its checkpoint."""


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs to train, and their common settings."""

    wanted: Mapping[str, tuple[RunConfig, Path]]
    """Recipe and folder of each run, by name."""
    data: str | None
    command: str
    """The command that continues the runs."""

    def unfinished(self) -> list[str]:
        """Return the names of the runs without scores."""
        found = self.wanted.items()
        return [name for name, (_, out) in found if not RunFolder(out).scores.exists()]

    def use_gpu(self) -> bool:
        """Return whether any run uses a GPU if there is one."""
        return any(config.device != "cpu" for config, _ in self.wanted.values())

    def folder(self) -> Path:
        """Return the common parent of all run folders."""
        return Path(os.path.commonpath([out.absolute().parent for _, out in self.wanted.values()]))


def train_runs(
    runs: Runs,
    pool: WorkerPool,
    *,
    hear: Callable[[str], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
    watch: Callable[[str, Place], None] = lambda *_: None,
    failed: dict[str, str] | None = None,
) -> None:
    """Train the unfinished runs in a pool.

    `hear` is called with the name of each finished run, `note` with messages, `watch` regularly
    with a run's name and progress. A failed run stops the others, which save their state; but if
    `failed` is given, the error is stored there by name and the others continue. Ctrl-C also stops
    the runs, a second Ctrl-C immediately.
    """
    try:
        try:
            _work_off(runs, pool, hear, note, watch, failed)
        finally:
            _stop(pool)
    except KeyboardInterrupt:
        begun = any(out.exists() for _, out in runs.wanted.values())
        advice = f"continue with: {runs.command}" if begun else "nothing was written"
        raise Interrupted(f"stopped; {advice}") from None


def _work_off(
    runs: Runs,
    pool: WorkerPool,
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
        at_once = min(len(waiting), pool.num_places)
        note(f"training {count}, {at_once} at once: {', '.join(waiting)}")
    done = len(wanted) - len(waiting)
    while waiting or pool.names():
        while waiting and len(pool.names()) < pool.num_places:
            name = waiting.pop(0)
            config, out = wanted[name]
            job = RunJob(config, out.absolute(), runs.data, runs.command)
            needs = ANYTHING
            with suppress(DataError):  # the run itself reports missing data
                needs = find_needs([config], runs.data)
            pool.start(name, train_run, job, needs)
        for name, (word, *reason), is_last in pool.hear():
            if not is_last:
                pool.answer(name, None)
                watch(name, *reason)
                continue
            done += 1
            if word == DONE:
                note(f"{name} is finished ({done} of {len(wanted)})")
                hear(name)
            elif failed is not None:
                failed[name] = reason[0]
                note(f"{name} failed: {reason[0]}")
            elif word == LOST:
                raise WorkerLostError(f"{name}: {reason[0]}; continue with: {runs.command}")
            elif word == SPENT:
                raise ResourceError(f"{name}: {reason[0]}")
            else:
                raise RunError(f"{name}: {reason[0]}")


def _stop(pool: WorkerPool) -> None:
    """Stop all running jobs and wait until they have saved their state."""
    with suppress(KeyboardInterrupt):  # after a second one, closing the pool ends the jobs
        pool.stop()
        while pool.names():
            for name, _, is_last in pool.hear():
                if not is_last:  # a run that waits for a reply cannot end
                    pool.answer(name, None)


# --- where a run is trained --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunJob:
    """One run to train."""

    config: RunConfig
    folder: Path
    data: str | None
    command: str
    tell_after: float = 20.0
    """Seconds between two progress messages."""


@dataclass(frozen=True, slots=True)
class Place:
    """The progress of a run."""

    stage: str
    step: int
    num_steps: int
    """Of the stage."""
    seconds_left: float
    """Estimated time until the stage ends, from the speed since the last start."""


class Teller(Listener):
    """Sends a run's progress to the process that trains several runs."""

    def __init__(self, tell: Tell, after: float):
        self._tell, self._after = tell, after
        self._reported = time.monotonic()
        self._stage = ""
        self._first = 0
        """The stage's first update since the last start."""
        self._began = self._reported

    def step(self, record: StepRecord) -> None:
        """Send the progress if the interval has passed."""
        now = time.monotonic()
        if record.stage != self._stage:
            self._stage, self._first, self._began = record.stage, record.step, now
        elif now - self._reported >= self._after:
            self._reported = now
            pace = (now - self._began) / (record.step - self._first)
            left = pace * (record.num_steps - record.step)
            self._tell(("under way", Place(record.stage, record.step, record.num_steps, left)))


def train_run(tell: Tell, job: RunJob) -> Message:
    """Train a run, or resume it."""
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
    """Return what runs of some recipes need: the paths that they read, and whether a GPU."""
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
    """Wait until the process of a lost worker has saved its run and ended."""
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
