"""What a report is made of: the runs it describes, and sections of texts, panels and tables."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plait.tasks.metrics import format_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.analysis.plots import Panel
    from plait.analysis.runs import AnalysedRun
    from plait.inference.predictor import Progress


@dataclass(frozen=True, slots=True)
class Table:
    """A table; the first column names the row."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_words: int = 1
    """Leading columns that are not numbers."""
    is_open: bool = False
    """Whether it is shown at once, instead of on a click."""


@dataclass(frozen=True, slots=True)
class Example:
    """A row that a model answered wrong."""

    texts: Sequence[str]
    note: str


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the page, in the order of its fields."""

    id: str
    title: str
    text: str
    panels: Sequence[Panel] = ()
    examples: Sequence[tuple[str, Sequence[Example]]] = ()
    """Lists of examples under their titles."""
    notes: Sequence[str] = ()
    tables: Sequence[Table] = ()
    code: Sequence[tuple[str, str]] = ()
    """Texts in a fixed-width font, each after its title."""
    sections: Sequence[Section] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Report:
    """What the sections are made from."""

    runs: Sequence[AnalysedRun]
    alone: Mapping[str, AnalysedRun] = field(default_factory=dict)
    """Single-task runs, by task."""
    progress: Progress = lambda *_: None

    @property
    def tasks(self) -> list[str]:
        """The tasks of all runs."""
        return list(dict.fromkeys(task for run in self.runs for task in run.config.tasks))

    @property
    def is_single(self) -> bool:
        """Whether there is one run, which need not be named everywhere."""
        return len(self.runs) == 1

    def owner(self, task: str) -> AnalysedRun:
        """Return the first run with a task."""
        return next(run for run in self.runs if task in run.config.tasks)

    def title(self, title: str, run: AnalysedRun) -> str:
        """Return a title, with the run's name if there are several."""
        return title if self.is_single else f"{title} · {run.name}"


def number(value: float | None, places: int = 3) -> str:
    """Write a number with a minus sign; "none" if it is undefined."""
    return format_number(value, places).replace("-", "\N{MINUS SIGN}")


def signed(value: float) -> str:
    """Write a difference with its sign."""
    text = number(value)
    return f"+{text}" if value > 0 and text.strip("0.") else text


def percent(value: float) -> str:
    """Write a share as a percentage."""
    return f"{value:.0%}" if math.isfinite(value) else "none"
