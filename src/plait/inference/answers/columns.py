"""The columns of a file of predictions: names, types and values."""

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
    """One task's columns in a file of predictions."""

    task: str
    spec: TaskSpec
    text: tuple[str, ...]
    """Text columns that the task reads."""
    name: str
    """Prefix of the column names: the task's name, unless the file has such a column."""
    probabilities: bool = False
    """Whether there is a column for every class."""
    threshold: float | None = None
    """Confidence below which a row is marked for review; None adds no review column."""
    separator: str = ";"
    """Separator between several labels in one cell."""

    def types(self) -> dict[str, Any]:
        """Return the types of the columns by name."""
        ends = self.spec.kind.columns()
        found = {f"{self.name}{end}": _TYPES[column] for end, column in ends.items()}
        if self.probabilities:
            found |= {f"{self.name}_p_{label}": pa.float64() for label in self.spec.labels}
        if self.threshold is not None:
            found[f"{self.name}_review"] = pa.bool_()
        return found

    def cells(self, answer: Prediction | None) -> list[Any]:
        """Return the cells of one prediction; empty cells if it is None."""
        if answer is None:
            return [None] * len(self.types())
        cells = self.spec.kind.cells(answer, self.separator)
        cells += answer.probabilities if self.probabilities else ()
        return cells if self.threshold is None else [*cells, self.is_unsure(answer)]

    def table(self, answer: Prediction | None) -> dict[str, Any] | None:
        """Return the prediction as a dict, for JSON."""
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
        """Return whether a prediction's confidence is below the threshold."""
        sure = None if answer is None else answer.confidence
        return self.threshold is not None and sure is not None and sure < self.threshold


def rename_taken(columns: Iterable[AnswerColumns], names: Iterable[str]) -> list[AnswerColumns]:
    """Rename columns that the file already has to predicted_TASK and so on.

    A file often has the labels in a column with the task's name; that column is kept.
    """
    taken = set(names)
    found = []
    for column in columns:
        choices = (column, replace(column, name=f"predicted_{column.task}"))
        free = [choice for choice in choices if not taken & choice.types().keys()]
        if not free:
            there = min(taken & choices[1].types().keys())
            raise UsageError(
                f"the predictions of task {column.task!r} need a column {there!r}, which the file "
                "already has; rename that column"
            )
        found.append(free[0])
        taken |= free[0].types().keys()
    return found
