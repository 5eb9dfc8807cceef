"""The reports' tables: which rows they have in print, and what was printed."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from pydantic import BaseModel, ConfigDict

from plait.config import PublishedConfig, list_recipes
from plait.results.records import SUMMARIES, Record


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a printed table."""

    recipe: str
    run: str
    """The recipe whose records are the row's: another one's where the report repeats a run."""
    published: PublishedConfig
    is_repeated: bool
    """Whether a table before this one has it."""

    def printed(self, name: str) -> float | None:
        """Return a figure as printed; none where it was not."""
        return self.published.figures.get(name)

    def figure(self, name: str) -> float | None:
        """Return a figure, summaries worked out from the printed tasks, misprints or not."""
        if name not in SUMMARIES:
            return self.printed(name)
        tasks = {k: v for k, v in self.published.figures.items() if k not in SUMMARIES}
        return summarise(tasks, name) if tasks else None


@dataclass(frozen=True, slots=True)
class Table:
    """A printed table."""

    name: str
    """Also of its picture."""
    system: str
    title: str
    tasks: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def summaries(self) -> tuple[str, ...]:
        """What sums the tasks up: both means, and the sum where the report gives it."""
        if len(self.tasks) < 3:
            return ()
        has_sum = any(row.printed("sum") is not None for row in self.rows)
        return ("sum", "mean", "overall") if has_sum else ("mean", "overall")


@dataclass(frozen=True, slots=True)
class Report:
    """A report and its tables."""

    system: str
    title: str
    authors: str
    tables: tuple[Table, ...]


class Detail(BaseModel):
    """Figures that a report gives of one task of one run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    where: str
    recipe: str
    task: str
    what: str
    published: tuple[float, ...]
    metrics: tuple[str, ...] = ()
    per_class: str = ""
    classes: tuple[int, ...] = ()
    mistaken: tuple[tuple[int, int], ...] = ()
    note: str = ""

    def read(self, record: Record) -> list[float] | None:
        """Return the same figures of a record; none where it does not have them."""
        task = record.dev.tasks.get(self.task)
        if task is None:
            return None
        if self.mistaken:
            counts = task.confusion
            if counts is None:
                return None
            return [float(counts[a][b] + counts[b][a]) for a, b in self.mistaken]
        if self.metrics:
            values = [task.metrics.get(name) for name in self.metrics]
        else:
            chosen = self.classes or range(len(task.per_class))
            if not task.per_class:
                return None
            values = [task.per_class[number].get(self.per_class) for number in chosen]
        return None if None in values else [float(value) for value in values if value is not None]


@cache
def read_outline() -> dict[str, Any]:
    """Read tables.toml."""
    text = (resources.files("plait.results") / "tables.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def read_published() -> dict[str, PublishedConfig]:
    """Return what was published of every packaged recipe that rebuilds a printed row."""
    return {
        name: PublishedConfig.model_validate(table["published"])
        for name, table in list_recipes().items()
        if "published" in table
    }


def read_reports() -> list[Report]:
    """Return the reports with their tables, in order."""
    outline, published = read_outline(), read_published()
    seen: set[str] = set()
    tables = []
    for entry in outline["table"]:
        rows = []
        for recipe in entry["rows"]:
            row = published[recipe]
            rows.append(Row(recipe, row.alias or recipe, row, recipe in seen))
            seen.add(recipe)
        fixed = {key: entry[key] for key in ("name", "system", "title")}
        tables.append(Table(**fixed, tasks=tuple(entry["tasks"]), rows=tuple(rows)))
    return [
        Report(**entry, tables=tuple(t for t in tables if t.system == entry["system"]))
        for entry in outline["report"]
    ]


def read_details() -> list[Detail]:
    """Return the figures that reports give besides their tables."""
    return [Detail.model_validate(entry) for entry in read_outline()["detail"]]


def summarise(tasks: dict[str, float], name: str) -> float:
    """Summarise printed figures as `plait.tasks.metrics` does."""
    moved = read_outline()["printed"]["correlations"] if name == "overall" else ()
    values = [(1 + value) / 2 if task in moved else value for task, value in tasks.items()]
    return sum(values) if name == "sum" else sum(values) / len(values)
