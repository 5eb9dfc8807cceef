"""Train one trial, a run or one run per fold, in a worker process.

The process reports every dev score; the reply says whether to continue.
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


class Pruned(Exception):  # noqa: N818 - pruning is not an error
    """The trial is stopped early, because its scores are below the median."""


@dataclass(frozen=True, slots=True)
class Job:
    """The input of a trial's process."""

    runs: tuple[tuple[RunConfig, Path], ...]
    """Recipe and folder of each run."""
    data: str | None


class Reporter(Listener):
    """Reports each dev score to the search, and stops the run if the reply says so.

    Evaluations are counted over all runs of the trial, including those before a resume.
    """

    def __init__(self, tell: Tell, select: str):
        self.tell, self.select = tell, select
        self.count = 0
        self.begun = False

    def start(self, folder: Path, config: dict[str, Any], step: int) -> None:  # noqa: ARG002
        """Count the scores that a resumed run has already reported."""
        self.count += count_scores(folder)
        self.begun = True

    def scores(self, step: int, split: str, scores: Scores) -> None:
        """Report a score and wait for the reply."""
        if split != "dev" or step == 0:
            return
        self.count += 1
        if not self.tell(("figure", self.count, scores.summary[self.select])):
            raise Pruned


def count_scores(folder: Path) -> int:
    """Count the dev scores in a run's log, without those before training."""
    path = RunFolder(folder).log
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    events = [json.loads(line) for line in lines]
    return sum(e["event"] == "scores" and e["split"] == "dev" and e["step"] > 0 for e in events)


def run_trial(tell: Tell, job: Job) -> Message:
    """Train a trial's runs; return DONE with the score, or the message of a pruned trial."""
    try:
        return (DONE, _train(tell, job))
    except Pruned:
        return ("pruned",)


def _train(tell: Tell, job: Job) -> float:
    """Return the mean of the runs' best dev scores."""
    from plait.training.runs import train

    reporter = Reporter(tell, job.runs[0][0].select)
    figures = []
    for config, folder in job.runs:
        reporter.begun = False
        wait_until_free(RunFolder(folder))
        outcome = train(config, folder, data=job.data, resume=folder.exists(), listeners=[reporter])
        if not reporter.begun:  # the run was already finished
            reporter.count += count_scores(folder)
        figures.append(float(outcome.result["dev"]["summary"][config.select]))
    return sum(figures) / len(figures)
