"""What long work looks like: one live line on a terminal, a plain line now and then elsewhere.

All of it goes to standard error, so that standard output holds results alone.
"""

from __future__ import annotations

import json
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
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from plait.inference.scoring import Scores
    from plait.training.loop import StepRecord

PLAIN_SECONDS = 10.0
"""Between two plain lines, so that a log file stays readable."""

BAR = 24
"""Columns of the bar where there is room."""


class _Console(Console):
    """Shows what a terminal would obey in texts; styles are its own."""

    def render_str(self, text: str, *args: Any, **kwargs: Any) -> Text:
        """Make a text of a string, as all that is printed passes."""
        return super().render_str(show_controls(text), *args, **kwargs)


def make_console(*, stderr: bool = False) -> Console:
    """Return a console that prints texts as they are: no markup, no emoji, no line breaks."""
    return _Console(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)


@dataclass(slots=True)
class _Work:
    """Something of known length that is under way; of unknown length where `total` is 0."""

    what: str
    done: int = 0
    total: int = 0
    is_bytes: bool = False
    seconds: float = 0.0
    """Time that the steps counted in `timed` took."""
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
    """Shows progress, losses, scores and time left; a context that takes its line away."""

    def __init__(self, console: Console | None = None):
        self.console = console or make_console(stderr=True)
        self.live = self.console.is_terminal and not self.console.is_dumb_terminal
        self.first_scores: dict[str, float] = {}
        self._best = -1
        """Updates after which the model was best."""
        self._limited = False
        """Whether scores are of some rows only while it trains."""
        self._losses: dict[str, float] = {}
        self._training: _Work | None = None
        self._side: _Work | None = None
        """Reading or scoring, shown instead of training while it goes on."""
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
        """Take the line away."""
        self._screen.stop()

    # --- work ---

    def begin(self, what: str) -> None:
        """Say on a terminal what is going on that cannot be measured."""
        self._side = _Work(what)
        self._start_screen()

    def reading(self, what: str, done: int, total: int) -> None:
        """Show how far reading is."""
        self.work(f"reading {what}", done, total, is_bytes=True)

    def scoring(self, task: str, done: int, total: int) -> None:
        """Show how far scoring is."""
        self.work(f"scoring {task}", done, total)

    def asking(self, task: str, done: int, total: int) -> None:
        """Show how far a teacher is."""
        self.work(f"asking the teacher about {task}", done, total)

    def work(self, what: str, done: int, total: int, *, is_bytes: bool = False) -> None:
        """Show how far something is; in plain lines only where it takes long."""
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
        """Move the line, or print one now and then."""
        now = time.monotonic()
        work = self._training
        if work is None or work.what.split(",")[0] != record.stage:
            if work is not None:  # the stage before may have trained something else
                self._losses = {}
            work = self._training = _Work(record.stage, total=record.num_steps)
        elif self._side is None:  # else the time since the last update went into scoring
            work.seconds += now - self._mark
            work.timed += 1
        work.what, work.done = f"{record.stage}, epoch {record.epoch}", record.step
        self._side, self._mark = None, now
        self._show(work)

    def losses(self, record: StepRecord, losses: dict[str, float]) -> None:  # noqa: ARG002
        """Remember each task's last loss for the next line."""
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
        """Print a sentence."""
        self.console.print(f"note: {text}")

    def start(self, folder: Path, config: dict[str, Any], step: int) -> None:
        """Say what begins, or goes on."""
        stages = [config.get("train", {}), *config.get("stage", {}).values()]
        self._limited = any(stage.get("eval_limit") for stage in stages)
        going_on = f", going on after {counted(step, 'update')}" if step else ""
        names = ", ".join(config.get("train", {}).get("tasks") or config["tasks"])
        self.console.print(f"training {config['name']} on {names} in {folder}{going_on}")
        self.begin("starting")

    def best(self, step: int) -> None:
        """Remember it for the line of its scores."""
        self._best = step

    def scores(self, step: int, split: str, scores: Scores) -> None:
        """Print one line of scores."""
        figures = "  ".join(f"{task} {figure(v)}" for task, v in scores.primary.items())
        if split == "dev" and step == 0:
            self.first_scores = scores.primary
        star = "  best so far" if split == "dev" and step == self._best > 0 else ""
        when = "before training" if step == 0 else f"after {counted(step, 'update')}"
        overall = figure(scores.summary["overall"])
        most = max((task.num_examples for task in scores.tasks.values()), default=0)
        rows = f", {most} rows a task at most" if self._limited else ""
        self.console.print(f"{split:>5} {when}{rows}: {figures}  overall {overall}{star}")

    # --- the live line ---

    def _start_screen(self) -> None:
        if self.live:
            self._screen.start()

    def _line(self) -> Text:
        """Fit the work at hand into one row of the terminal, the least important part last."""
        work = self._side or self._training
        if work is None:
            return Text()
        losses = self._losses if work is self._training else {}
        known = [part for part in (work.count(), work.left()) if part]
        room = self.console.width - 1 - sum(2 + len(part) for part in known)
        text = Text(shorten(show_controls(work.what), max(room, 8)))
        room -= len(text)
        told = next(
            (t for t in (_all_losses(losses), _mean_loss(losses)) if len(t) + 12 < room), ""
        )
        bar = min(BAR, room - 2 - (2 + len(told) if told else 0))
        if work.total and bar >= 8:
            text.append("  ").append(self._bar(work, bar))
        for part in known:
            text.append(f"  {part}")
        text.append(f"  {told}" if told else "", style="dim")
        text.truncate(self.console.width - 1)
        return text

    def _bar(self, work: _Work, width: int) -> Text:
        full, empty = ("#", "-") if self.console.options.ascii_only else ("━", "─")
        filled = min(width, width * work.done // work.total)
        return Text.assemble((full * filled, "green"), (empty * (width - filled), "dim"))


def read_scores(folder: Path) -> Iterator[dict[str, Any]]:
    """Read the dev scores of a run's log, in order."""
    path = folder / "metrics.jsonl"
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        event = json.loads(line)
        if event["event"] == "scores" and event["split"] == "dev":
            yield event


# --- writing figures and tables ----------------------------------------------------------


def figure(value: float | None) -> str:
    """Write a figure the way the tables of the field do: .512, -.007."""
    if value is None or math.isnan(value):
        return "none"
    text = f"{value:.3f}"
    if text == "-0.000":
        return ".000"
    return text.replace("0.", ".", 1) if abs(value) < 1 and "1." not in text else text


def print_table(console: Console, rows: Sequence[Sequence[str]], num_words: int = 1) -> None:
    """Print rows in columns as wide as they need, the first row bold.

    The first `num_words` columns stand left, the others, of figures, right. Lines are never
    folded, so that a table in a file is the table on any terminal.
    """
    rows = [[show_controls(cell) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for i, row in enumerate(rows):
        cells = []
        for column, (cell, width) in enumerate(zip(row, widths, strict=True)):
            space = " " * (width - cell_len(cell))  # Japanese and emoji are two columns a sign
            cells.append(cell + space if column < num_words else space + cell)
        console.print("  ".join(cells).rstrip(), style="" if i else "bold")


def shorten(text: str, width: int) -> str:
    """Cut a text to a number of columns."""
    if cell_len(text) <= width:
        return text
    # A sign has a column at least: what is beyond them need not be measured.
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
