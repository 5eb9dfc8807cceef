"""What a run looks like while it trains: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from plait.training.listeners import Listener

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from plait.evaluate import Scores
    from plait.training.loop import StepRecord

PLAIN_SECONDS = 10.0
"""Between two plain lines, so that a log file stays readable."""


class Display(Listener):
    """Shows progress, losses, scores and time left on standard error."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(stderr=True, highlight=False, soft_wrap=True)
        self.live = self.console.is_terminal
        self.first_scores: dict[str, float] | None = None
        self.best: float | None = None
        self._losses = ""
        self._began = self._last = time.monotonic()
        self._first_step: int | None = None
        self._task: Any = None
        self._what = ""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[losses]}"),
            console=self.console,
            disable=not self.live,
            transient=True,
        )

    def note(self, text: str) -> None:
        """Print a sentence."""
        self.console.print(f"note: {text}", markup=False)

    def reading(self, what: str, done: int, total: int) -> None:
        """Show how far reading is."""
        self._side_work(f"reading {what}", done, total)

    def scoring(self, task: str, done: int, total: int) -> None:
        """Show how far scoring is."""
        self._side_work(f"scoring {task}", done, total)

    def _side_work(self, what: str, done: int, total: int) -> None:
        """Show work between updates; in plain lines only where it takes long."""
        if self.live:
            self._progress.start()
            self._advance(what, done, total)
        elif time.monotonic() - self._last > PLAIN_SECONDS:
            self._last = time.monotonic()
            self.console.print(f"{what}: {done * 100 // max(total, 1)}%", markup=False)

    def start(self, folder: Path, config: dict[str, Any], step: int) -> None:
        """Say what begins."""
        going_on = f", going on after {step} updates" if step else ""
        names = ", ".join(config["tasks"])
        text = f"training {config['name']} on {names} in {folder}{going_on}"
        self.console.print(text, markup=False)
        self._progress.start()

    def step(self, record: StepRecord) -> None:
        """Move the bar, or print a line now and then."""
        if self._first_step is None:
            self._first_step, self._began = record.step - 1, time.monotonic()
        what = f"{record.stage}, epoch {record.epoch}"
        if self.live:
            self._advance(what, record.step, record.num_steps)
        elif time.monotonic() - self._last > PLAIN_SECONDS:
            self._last = time.monotonic()
            done = record.step - self._first_step
            left = (self._last - self._began) / done * (record.num_steps - record.step)
            self.console.print(
                f"{what}: update {record.step} of {record.num_steps}, "
                f"{_clock(left)} left  {self._losses}",
                markup=False,
            )

    def losses(self, record: StepRecord, losses: dict[str, float]) -> None:  # noqa: ARG002
        """Remember the losses for the next line."""
        self._losses = "  ".join(f"{task} {loss:.3f}" for task, loss in losses.items())
        if self._task is not None:
            self._progress.update(self._task, losses=self._losses)

    def scores(self, step: int, split: str, scores: Scores) -> None:
        """Print one line of scores."""
        figures = "  ".join(f"{task} {figure(v)}" for task, v in scores.primary.items())
        total = scores.summary["sum"]
        star = ""
        if split == "dev":
            if step == 0:
                self.first_scores = scores.primary
            elif self.best is None or total > self.best:
                self.best, star = total, "  best so far"
        when = "before training" if step == 0 else f"after {step} updates"
        self.console.print(
            f"{split:>5} {when}: {figures}  overall {figure(scores.summary['overall'])}{star}",
            markup=False,
        )

    def close(self) -> None:
        """Take the bar away."""
        self._progress.stop()

    def _advance(self, what: str, done: int, total: int) -> None:
        if self._what != what.split(",")[0]:  # a new stage or file: a bar of its own
            if self._task is not None:
                self._progress.remove_task(self._task)
            self._what = what.split(",")[0]
            self._task = self._progress.add_task(what, total=total, losses="")
        self._progress.update(self._task, description=what, completed=done, total=total)


def figure(value: float | None) -> str:
    """Write a figure the way the tables of the field do: .512, -.007."""
    if value is None or math.isnan(value):
        return "none"
    return f"{value:.3f}".replace("0.", ".", 1)


def score_table(
    metrics: Mapping[str, str], columns: Mapping[str, Mapping[str, float | None]]
) -> Table:
    """Put tasks in rows and runs, baselines or splits in columns."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("task")
    table.add_column("figure")
    for title in columns:
        table.add_column(title, justify="right")
    for task, metric in metrics.items():
        table.add_row(task, metric, *(figure(values.get(task)) for values in columns.values()))
    return table


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
