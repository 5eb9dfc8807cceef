"""A recipe becomes a run wherever a crew's worker is, or the reason why not."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plait.config import flatten
from plait.data import find_root, sample_root
from plait.engines.crew import DONE, FAILED, STOPPED
from plait.errors import Interrupted, PlaitError, RunError
from plait.training.folder import RunFolder, take_lock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.config import RunConfig
    from plait.engines.crew import Message, Tell

PATIENCE_S = 120.0
"""Seconds that an update and a checkpoint after it may take."""


@dataclass(frozen=True, slots=True)
class RunJob:
    """One run to be trained."""

    config: RunConfig
    folder: Path
    data: str | None
    paths: tuple[Path, ...] = ()
    """What must be seen where it is trained."""


def train_run(_: Tell, job: RunJob) -> Message:
    """Train a run, or go on with it."""
    from plait.runs import train

    try:
        wait_until_free(RunFolder(job.folder))
        train(job.config, job.folder, data=job.data, resume=job.folder.exists())
    except Exception as error:
        return say_failure(error)
    return (DONE,)


def say_failure(error: Exception) -> Message:
    """Turn what a job raised into its last words."""
    if isinstance(error, (Interrupted, EOFError, BrokenPipeError)):  # or nobody hears any more
        return (STOPPED,)
    if isinstance(error, PlaitError):
        return (FAILED, str(error))
    return (FAILED, f"{type(error).__name__}: {' '.join(str(error).split())}")


def find_paths(configs: Sequence[RunConfig], data: str | None) -> tuple[Path, ...]:
    """Return the places on this machine that runs of some recipes read."""
    found: set[Path] = set()
    for config in configs:
        root = find_root(config.data, data)
        found |= {Path.cwd() if root is None else root.absolute()} - {sample_root()}
        for value in flatten(config.model_dump(mode="json", exclude_none=True)).values():
            named = value if isinstance(value, list) else [value]
            paths = (Path(word) for word in named if isinstance(word, str) and word[:1] == "/")
            found |= {path for path in paths if path.exists()}
    return tuple(sorted(found))


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
