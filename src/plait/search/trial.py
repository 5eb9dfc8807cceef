"""One trial becomes a figure: a run, or one per fold, in a process of its own.

The process tells every dev figure as it comes, and is answered whether to go on.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.errors import Interrupted, PlaitError, RunError
from plait.training.folder import RunFolder, take_lock
from plait.training.listeners import Listener

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from plait.config import RunConfig
    from plait.evaluate import Scores


PATIENCE_S = 120.0
"""Seconds that an update and a checkpoint after it may take."""


class Pruned(Exception):  # noqa: N818 - it is no error that a trial is given up
    """Told to stop: what the trial has come to so far does not promise enough."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a trial's process is handed."""

    runs: tuple[tuple[RunConfig, Path], ...]
    """Recipe and folder of each of its runs."""
    data: str | None
    num_jobs: int
    """Processes that share the machine's threads."""
    environment: dict[str, str]
    """The search's, as it is now: processes are started by one that may be older."""


class Reporter(Listener):
    """Tells the search each dev figure, and ends the run if that is the answer.

    Evaluations are counted over all runs of the trial, those of earlier sittings as well.
    """

    def __init__(self, connection: Connection, select: str):
        self.connection, self.select = connection, select
        self.count = 0
        self.begun = False

    def start(self, folder: Path, config: dict[str, Any], step: int) -> None:  # noqa: ARG002
        """Count what a resumed run has told already."""
        self.count += count_scores(folder)
        self.begun = True

    def scores(self, step: int, split: str, scores: Scores) -> None:
        """Tell a figure and wait for the answer."""
        if split != "dev" or step == 0:
            return
        self.count += 1
        self.connection.send(("figure", self.count, scores.summary[self.select]))
        if not self.connection.recv():
            raise Pruned


def count_scores(folder: Path) -> int:
    """Count the dev scores in a run's log, those before any training aside."""
    path = RunFolder(folder).log
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    events = [json.loads(line) for line in lines]
    return sum(e["event"] == "scores" and e["split"] == "dev" and e["step"] > 0 for e in events)


def run_trial(connection: Connection, job: Job) -> None:
    """Train a trial's runs and send what came of it: done, pruned, failed or stopped."""
    os.environ.update(job.environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the search says when to stop
    _end_with_parent()
    try:
        told: tuple[str, Any] = ("done", _train(connection, job))
    except Pruned:
        told = ("pruned", None)
    except (Interrupted, EOFError, BrokenPipeError):
        told = ("stopped", None)
    except PlaitError as error:
        told = ("failed", str(error))
    except Exception as error:
        told = ("failed", f"{type(error).__name__}: {' '.join(str(error).split())}")
    with suppress(OSError):  # nobody may be there to hear it; the folder has it all
        connection.send(told)
    connection.close()


def _train(connection: Connection, job: Job) -> float:
    """Return the mean of the runs' best dev figures."""
    import torch

    from plait.runs import train

    torch.set_num_threads(max(1, torch.get_num_threads() // job.num_jobs))
    reporter = Reporter(connection, job.runs[0][0].select)
    figures = []
    for config, folder in job.runs:
        reporter.begun = False
        _wait_for(RunFolder(folder))
        outcome = train(config, folder, data=job.data, resume=folder.exists(), listeners=[reporter])
        if not reporter.begun:  # finished in an earlier sitting
            reporter.count += count_scores(folder)
        figures.append(float(outcome.result["dev"]["summary"][config.select]))
    return sum(figures) / len(figures)


def _wait_for(folder: RunFolder) -> None:
    """Wait until the process of a search that was killed has saved its run and is gone."""
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


def _end_with_parent() -> None:
    """Save and stop where the search is killed, as on a polite kill of this process."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
