"""Read published.toml and claims.toml: the reports' tables, scores and claims as printed."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from reproduction.records import SUMMARIES

if TYPE_CHECKING:
    from reproduction.records import Record

HERE = Path(__file__).parent


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Row(_Part):
    """A printed row, as one of the recipes rebuilds it."""

    recipe: str
    system: str
    table: str = ""
    row: str
    """Its name in the report."""
    scores: dict[str, float] = {}
    """Dev scores as printed; empty where the report has none."""
    note: str = ""
    alias: str | None = None

    @property
    def run(self) -> str:
        """The recipe whose records are the row's."""
        return self.alias or self.recipe

    def score(self, name: str) -> float | None:
        """Return a score; summaries are computed from the printed tasks."""
        if name not in SUMMARIES:
            return self.scores.get(name)
        tasks = {k: v for k, v in self.scores.items() if k not in SUMMARIES}
        if not tasks:
            return None
        scaled = read_published()["printed"]["correlations"] if name == "overall" else ()
        values = [(1 + v) / 2 if task in scaled else v for task, v in tasks.items()]
        return sum(values) if name == "sum" else sum(values) / len(values)


@dataclass(frozen=True, slots=True)
class Table:
    """A printed table."""

    name: str
    """Also the name of its picture."""
    system: str
    title: str
    tasks: tuple[str, ...]
    rows: tuple[Row, ...]
    repeated: frozenset[str]
    """Rows that an earlier table has."""

    @property
    def summaries(self) -> tuple[str, ...]:
        """Summaries that are shown; the sum only where the report has it."""
        if len(self.tasks) < 3:
            return ()
        has_sum = any("sum" in row.scores for row in self.rows)
        return ("sum", "mean", "overall") if has_sum else ("mean", "overall")


@dataclass(frozen=True, slots=True)
class Report:
    """A report and its tables."""

    system: str
    title: str
    authors: str
    tables: tuple[Table, ...]


class Detail(_Part):
    """Scores that a report prints for one task of one run."""

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

    def read(self, record: Record) -> list[float]:
        """Return the same scores of a record."""
        task = record.dev.tasks[self.task]
        if self.mistaken:
            counts = task.confusion or []
            return [float(counts[a][b] + counts[b][a]) for a, b in self.mistaken]
        if self.metrics:
            return [float(task.metrics[name] or 0.0) for name in self.metrics]
        classes = self.classes or range(len(task.per_class))
        return [float(task.per_class[number][self.per_class]) for number in classes]


class Claim(_Part):
    """A claim of a report, as a comparison of rows by one score."""

    system: str
    where: str
    says: str
    better: tuple[str, ...]
    worse: tuple[str, ...]
    score: str
    kind: Literal["gain", "no gain", "best"] = "gain"

    @property
    def published(self) -> float | None:
        """The printed difference, None where a score is not printed."""
        rows = read_rows()
        sides = [
            [rows[recipe].score(self.score) for recipe in s] for s in (self.better, self.worse)
        ]
        known = [[value for value in side if value is not None] for side in sides]
        if known != sides:
            return None
        return fmean(known[0]) - (max(known[1]) if self.kind == "best" else fmean(known[1]))


@cache
def read_published() -> dict[str, Any]:
    """Read published.toml."""
    return tomllib.loads((HERE / "published.toml").read_text(encoding="utf-8"))


@cache
def read_rows() -> dict[str, Row]:
    """Return every printed row by the name of its recipe."""
    rows = read_published()["row"].items()
    return {name: Row.model_validate({"recipe": name, **values}) for name, values in rows}


def read_reports() -> list[Report]:
    """Return the reports with their tables."""
    outline, rows = read_published(), read_rows()
    seen: set[str] = set()
    tables = []
    for entry in outline["table"]:
        names = entry["rows"]
        tables.append(
            Table(
                **{key: entry[key] for key in ("name", "system", "title")},
                tasks=tuple(entry["tasks"]),
                rows=tuple(rows[name] for name in names),
                repeated=frozenset(seen & set(names)),
            )
        )
        seen |= set(names)
    return [
        Report(**entry, tables=tuple(t for t in tables if t.system == entry["system"]))
        for entry in outline["report"]
    ]


def read_details() -> list[Detail]:
    """Return the scores of single tasks that the reports print."""
    return [Detail.model_validate(entry) for entry in read_published()["detail"]]


def read_claims() -> list[Claim]:
    """Return the claims of all reports."""
    table = tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))
    return [Claim.model_validate(entry) for entry in table["claim"]]
