"""What every part of the page is written from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plait.analysis.report.comparison import Difference, compare
from plait.analysis.report.markup import Entry, Html, legend
from plait.analysis.report.style import series_marker, series_role

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from plait.analysis.report.plots import Easel
    from plait.analysis.report.subjects import Subject
    from plait.inference.fitting.answers import TaskAnswers


@dataclass(frozen=True, slots=True, eq=False)
class Material:
    """The runs, where pictures are drawn, and who hears how far it is."""

    subjects: list[Subject]
    easel: Easel
    alone: dict[str, Subject] = field(default_factory=dict)
    """A run of each task by itself."""
    comparing: Callable[[str, int, int], None] = lambda *_: None

    @property
    def tasks(self) -> list[str]:
        """Every run's tasks, in the order in which they come."""
        return list(dict.fromkeys(task for s in self.subjects for task in s.config.tasks))

    @property
    def is_single(self) -> bool:
        """Whether there is but one run, which need not be named everywhere."""
        return len(self.subjects) == 1

    def title(self, title: str, subject: Subject) -> str:
        """Return a picture's title, with the run's name where there are several."""
        return title if self.is_single else f"{title} · {subject.name}"

    def compare(self, task: str, mine: TaskAnswers, theirs: TaskAnswers) -> Difference:
        """Return how much more the first has, showing how far it is."""
        return compare(mine, theirs, lambda done, total: self.comparing(task, done, total))


def run_legend(material: Material, *more: Entry, only: Container[str] | None = None) -> Html:
    """Return which run has which line and mark; those that are drawn, if not all are."""
    runs = [
        Entry(subject.name, series_role(number), series_marker(number), "solid")
        for number, subject in enumerate(material.subjects)
        if only is None or subject.name in only
    ]
    return legend([*([] if material.is_single else runs), *more])
