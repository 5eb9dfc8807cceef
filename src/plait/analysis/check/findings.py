"""What a check finds: one sentence, what to do about it, and where the rows are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from plait.errors import counted

Level = Literal["stop", "warning", "note"]
"""Training would stop; scores or the model suffer; worth knowing."""


@dataclass(frozen=True, slots=True)
class Place:
    """A row in a file."""

    file: str
    line: int
    """Counted from 1, the header included; of Parquet, the row."""
    detail: str = ""
    """What is special about this row; never a word of its text."""
    text: str = ""
    """The words found, or the row's text, for those who ask to see them."""
    unit: str = "line"
    """What is counted: lines, or rows where a file has no lines."""

    def to_json(self, *, show: bool) -> dict[str, Any]:
        """Return plain values; the text only where it may be shown."""
        told: dict[str, Any] = {"file": self.file, "line": self.line}
        if self.detail:
            told["detail"] = self.detail
        return told | ({"text": self.text} if show and self.text else {})


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found in a task's data."""

    check: str
    level: Level
    task: str
    split: str
    sentence: str
    advice: str = ""
    count: int = 0
    """Rows it is about."""
    places: tuple[Place, ...] = ()
    """Those rows, the most telling first; only the first few where a check knows no more."""

    def to_json(self, *, show: bool = False) -> dict[str, Any]:
        """Return plain values."""
        return {
            "check": self.check,
            "level": self.level,
            "task": self.task,
            "split": self.split,
            "sentence": self.sentence,
            "advice": self.advice,
            "count": self.count,
            "places": [place.to_json(show=show) for place in self.places],
        }


def num_rows(count: int) -> str:
    """Write a number of rows: '1 row', '1,200 rows'."""
    return counted(count, "row")
