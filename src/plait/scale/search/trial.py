"""One trial becomes a figure: a run, or one per fold, in a process of its own.

The process tells every dev figure as it comes, and is answered whether to go on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.inference.folders import RunFolder
from plait.scale.pool import DONE
from plait.scale.running import wait_until_free
from plait.training.listeners import Listener

if TYPE_CHECKING:
    from pathlib import Path

    from plait.config import RunConfig
    from plait.inference.scoring import Scores
    from plait.scale import Message, Tell


class Pruned(Exception):  # noqa: N818 - it is no error that a trial is given up
    """Told to stop: what the trial has come to so far does not promise enough."""


@dataclass(frozen=True, slots=True)
class Job:
    """What a trial's process is handed."""

    runs: tuple[tuple[RunConfig, Path], ...]
    """Recipe and folder of each of its runs."""
    data: str | None


class Reporter(Listener):
    """Tells the search each dev figure, and ends the run if that is the answer.

    Evaluations are counted over all runs of the trial, those of earlier sittings as well.
    """

    def __init__(self, tell: Tell, select: str):
        self.tell, self.select = tell, select
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
        if not self.tell(("figure", self.count, scores.summary[self.select])):
            raise Pruned


def count_scores(folder: Path) -> int:
    """Count the dev scores in a run's log, those before any training aside."""
    path = RunFolder(folder).log
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    events = [json.loads(line) for line in lines]
    return sum(e["event"] == "scores" and e["split"] == "dev" and e["step"] > 0 for e in events)


def run_trial(tell: Tell, job: Job) -> Message:
    """Train a trial's runs and return what came of it: done, or pruned."""
    try:
        return (DONE, _train(tell, job))
    except Pruned:
        return ("pruned",)


def _train(tell: Tell, job: Job) -> float:
    """Return the mean of the runs' best dev figures."""
    from plait.training.runs import train

    reporter = Reporter(tell, job.runs[0][0].select)
    figures = []
    for config, folder in job.runs:
        reporter.begun = False
        wait_until_free(RunFolder(folder))
        outcome = train(config, folder, data=job.data, resume=folder.exists(), listeners=[reporter])
        if not reporter.begun:  # finished in an earlier sitting
            reporter.count += count_scores(folder)
        figures.append(float(outcome.result["dev"]["summary"][config.select]))
    return sum(figures) / len(figures)
