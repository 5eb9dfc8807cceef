"""What is written of a task's answers: which columns, of which types, and what stands in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from plait.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plait.tasks import TaskSpec
    from plait.types import Prediction


_TYPES = {
    "integer": pa.int64(),
    "number": pa.float64(),
    "text": pa.string(),
    "boolean": pa.bool_(),
}


@dataclass(frozen=True, slots=True)
class AnswerColumns:
    """One task's columns of a file of answers."""

    task: str
    spec: TaskSpec
    text: tuple[str, ...]
    """Columns that the task reads."""
    name: str
    """What the columns' names begin with: the task's, unless the file has such a column."""
    probabilities: bool = False
    """Whether there is a column for every class."""
    threshold: float | None = None
    """Confidence below which an answer is for review; None where there is no such column."""
    separator: str = ";"
    """What stands between several labels in one cell."""

    def types(self) -> dict[str, Any]:
        """Return the columns by name, with their types."""
        ends = self.spec.kind.columns()
        found = {f"{self.name}{end}": _TYPES[column] for end, column in ends.items()}
        if self.probabilities:
            found |= {f"{self.name}_p_{label}": pa.float64() for label in self.spec.labels}
        if self.threshold is not None:
            found[f"{self.name}_review"] = pa.bool_()
        return found

    def cells(self, answer: Prediction | None) -> list[Any]:
        """Return the cells of one answer; empty ones where there is none."""
        if answer is None:
            return [None] * len(self.types())
        cells = self.spec.kind.cells(answer, self.separator)
        cells += answer.probabilities if self.probabilities else ()
        return cells if self.threshold is None else [*cells, self.is_unsure(answer)]

    def table(self, answer: Prediction | None) -> dict[str, Any] | None:
        """Return the same as a table, for formats that nest."""
        if answer is None:
            return None
        table = self.spec.kind.to_json(answer)
        if self.probabilities and answer.probabilities:
            chances = (round(p, 6) for p in answer.probabilities)
            table["probabilities"] = dict(zip(self.spec.labels, chances, strict=True))
        if self.threshold is not None:
            table["review"] = self.is_unsure(answer)
        return table

    def is_unsure(self, answer: Prediction | None) -> bool:
        """Say whether an answer is less sure than it should be."""
        sure = None if answer is None else answer.confidence
        return self.threshold is not None and sure is not None and sure < self.threshold


def rename_taken(columns: Iterable[AnswerColumns], names: Iterable[str]) -> list[AnswerColumns]:
    """Give columns whose names the file has already other ones: predicted_TASK and so on.

    A file often has the right answers in a column called as the task is: that one is kept.
    """
    taken = set(names)
    found = []
    for column in columns:
        choices = (column, replace(column, name=f"predicted_{column.task}"))
        free = [choice for choice in choices if not taken & choice.types().keys()]
        if not free:
            there = min(taken & choices[1].types().keys())
            raise UsageError(
                f"the answers of task {column.task!r} would need a column {there!r}, which the "
                "file has already; give it another name"
            )
        found.append(free[0])
        taken |= free[0].types().keys()
    return found
