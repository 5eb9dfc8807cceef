"""Progress, notes and tables: a live line on a terminal, a line every 10 seconds in a log file.

Progress and notes go to standard error; standard output has only results.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.live import Live
from rich.text import Text

from plait.errors import counted, show_controls
from plait.training.listeners import Listener

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from plait.inference.scoring import Scores
    from plait.training.loop import StepRecord

PLAIN_SECONDS = 10.0
"""Seconds between two lines in a log file."""

BAR = 24
"""Width of the progress bar, in columns."""


class _Console(Console):
    """Replaces control characters in the texts it prints."""

    def render_str(self, text: str, *args: Any, **kwargs: Any) -> Text:
        """Return the text without control characters."""
        return super().render_str(show_controls(text), *args, **kwargs)


def make_console(*, stderr: bool = False) -> Console:
    """Return a console without markup, emoji codes or line wrapping."""
    return _Console(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)


@dataclass(slots=True)
class _Work:
    """Work in progress; `total` is 0 if its length is unknown."""

    what: str
    done: int = 0
    total: int = 0
    is_bytes: bool = False
    seconds: float = 0.0
    """Time that the `timed` steps took."""
    timed: int = 0

    def count(self) -> str:
        if self.is_bytes:
            return f"{self.done * 100 // max(self.total, 1)}%"
        return f"{self.done:,}/{self.total:,}" if self.total else f"{self.done:,}" * (self.done > 0)

    def left(self) -> str:
        if not (self.timed and self.total):
            return ""
        return f"{clock(self.seconds / self.timed * (self.total - self.done))} left"


class Display(Listener):
    """Shows progress, losses, scores and the time left; a context manager that clears its line."""

    def __init__(self, console: Console | None = None):
        self.console = console or make_console(stderr=True)
        self.live = self.console.is_terminal and not self.console.is_dumb_terminal
        self.first_scores: dict[str, float] = {}
        self._best = -1
        """Number of updates of the best model."""
        self._limited = False
        """Whether scores during training use only some rows."""
        self._losses: dict[str, float] = {}
        self._training: _Work | None = None
        self._side: _Work | None = None
        """Reading or scoring, shown instead of training."""
        self._mark = self._last = time.monotonic()
        # Standard output is left alone: it may go into a file while this is on a terminal.
        self._screen = Live(
            get_renderable=self._line,
            console=self.console,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
        )

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Clear the progress line."""
        self._screen.stop()

    # --- work ---

    def begin(self, what: str) -> None:
        """Show work without a known length, on a terminal."""
        self._side = _Work(what)
        self._start_screen()

    def reading(self, what: str, done: int, total: int) -> None:
        """Show the progress of reading, in bytes."""
        self.work(f"reading {what}", done, total, is_bytes=True)

    def scoring(self, task: str, done: int, total: int) -> None:
        """Show the progress of scoring, in rows."""
        self.work(f"scoring {task}", done, total)

    def asking(self, task: str, done: int, total: int) -> None:
        """Show the progress of a teacher's predictions, in rows."""
        self.work(f"teacher predicts {task}", done, total)

    def work(self, what: str, done: int, total: int, *, is_bytes: bool = False) -> None:
        """Show progress; in a log file only if it takes long."""
        now = time.monotonic()
        if self._side is None or self._side.what != what:
            self._side = _Work(what, done, total, is_bytes)
        else:
            self._side.seconds += now - self._mark
            self._side.timed += done - self._side.done
            self._side.done = done
        self._mark = now
        self._show(self._side)

    def step(self, record: StepRecord) -> None:
        """Update the progress line."""
        now = time.monotonic()
        work = self._training
        if work is None or work.what.split(",")[0] != record.stage:
            if work is not None:  # the previous stage may have had other tasks
                self._losses = {}
            work = self._training = _Work(record.stage, total=record.num_steps)
        elif self._side is None:  # otherwise the time was spent on scoring
            work.seconds += now - self._mark
            work.timed += 1
        work.what, work.done = f"{record.stage}, epoch {record.epoch}", record.step
        self._side, self._mark = None, now
        self._show(work)

    def losses(self, record: StepRecord, losses: dict[str, float]) -> None:  # noqa: ARG002
        """Store each task's last loss for the next line."""
        self._losses = self._losses | losses

    def _show(self, work: _Work) -> None:
        if self.live:
            self._start_screen()
        elif time.monotonic() - self._last > PLAIN_SECONDS:
            self._last = time.monotonic()
            losses = _all_losses(self._losses) if work is self._training else ""
            parts = [f"{work.what}: {work.count()}", work.left(), losses]
            self.console.print(", ".join(filter(None, parts)))

    # --- sentences ---

    def note(self, text: str) -> None:
        """Print a note."""
        self.console.print(f"note: {text}")

    def start(self, folder: Path, config: dict[str, Any], step: int) -> None:
        """Print that training begins or continues."""
        stages = [config.get("train", {}), *config.get("stage", {}).values()]
        self._limited = any(stage.get("eval_limit") for stage in stages)
        going_on = f", continuing after {counted(step, 'update')}" if step else ""
        names = ", ".join(config.get("train", {}).get("tasks") or config["tasks"])
        self.console.print(f"training {config['name']} on {names} in {folder}{going_on}")
        self.begin("starting")

    def best(self, step: int) -> None:
        """Store which update was the best, for the line of its scores."""
        self._best = step

    def scores(self, step: int, split: str, scores: Scores) -> None:
        """Print one line of scores."""
        figures = "  ".join(f"{task} {figure(v)}" for task, v in scores.primary.items())
        if split == "dev" and step == 0:
            self.first_scores = scores.primary
        star = "  best so far" if split == "dev" and step == self._best > 0 else ""
        when = "before training" if step == 0 else f"after {counted(step, 'update')}"
        average = figure(scores.summary["mean"])
        most = max((task.num_examples for task in scores.tasks.values()), default=0)
        rows = f", at most {most} rows per task" if self._limited else ""
        self.console.print(f"{split:>5} {when}{rows}: {figures}  average {average}{star}")

    # --- the live line ---

    def _start_screen(self) -> None:
        if self.live:
            self._screen.start()

    def _line(self) -> Text:
        """Return the progress line; its least important part is cut off first."""
        work = self._side or self._training
        if work is None:
            return Text()
        losses = self._losses if work is self._training else {}
        known = [part for part in (work.count(), work.left()) if part]
        room = self.console.width - 1 - sum(2 + len(part) for part in known)
        text = Text(shorten(show_controls(work.what), max(room, 8)))
        room -= len(text)
        losses_text = next(
            (t for t in (_all_losses(losses), _mean_loss(losses)) if len(t) + 12 < room), ""
        )
        bar = min(BAR, room - 2 - (2 + len(losses_text) if losses_text else 0))
        if work.total and bar >= 8:
            text.append("  ").append(self._bar(work, bar))
        for part in known:
            text.append(f"  {part}")
        text.append(f"  {losses_text}" if losses_text else "", style="dim")
        text.truncate(self.console.width - 1)
        return text

    def _bar(self, work: _Work, width: int) -> Text:
        full, empty = ("#", "-") if self.console.options.ascii_only else ("━", "─")
        filled = min(width, width * work.done // work.total)
        return Text.assemble((full * filled, "green"), (empty * (width - filled), "dim"))


# --- writing figures and tables ----------------------------------------------------------


def figure(value: float | None) -> str:
    """Write a number with three decimals and no leading zero: .512, -.007."""
    if value is None or math.isnan(value):
        return "none"
    text = f"{value:.3f}"
    if text == "-0.000":
        return ".000"
    return text.replace("0.", ".", 1) if abs(value) < 1 and "1." not in text else text


def signed(value: float) -> str:
    """Write a difference with its sign: +.012, -.007; no difference is .000."""
    text = figure(value)
    return text if text.startswith("-") or text == ".000" else f"+{text}"


def print_table(console: Console, rows: Sequence[Sequence[str]], num_words: int = 1) -> None:
    """Print a table; the first row is the bold header.

    The first `num_words` columns are left-aligned, the others right-aligned. Lines are not wrapped.
    """
    rows = [[show_controls(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for i, row in enumerate(rows):
        cells = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - cell_len(cell))  # wide characters take two columns
            cells.append(cell + space if column < num_words else space + cell)
        console.print("  ".join(cells).rstrip(), style="" if i else "bold")


def shorten(text: str, width: int) -> str:
    """Shorten a text to a number of columns."""
    if cell_len(text) <= width:
        return text
    # Each character has at least one column: the rest need not be measured.
    return f"{set_cell_size(text[: width - 1], width - 1).rstrip()}…"


def _all_losses(losses: dict[str, float]) -> str:
    return "  ".join(f"{task} {loss:.3f}" for task, loss in losses.items())


def _mean_loss(losses: dict[str, float]) -> str:
    return f"mean loss {sum(losses.values()) / len(losses):.3f}" if losses else ""


def clock(seconds: float) -> str:
    """Write a time as 1:02:03 or 2:03."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
