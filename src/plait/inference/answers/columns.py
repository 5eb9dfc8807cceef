"""What is written of a task's answers: which columns, of which types, and what stands in them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from plait.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from plait.types import Prediction, TaskSpec


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
        if not self.spec.labels:
            return {self.name: pa.float64()}
        found = {
            self.name: pa.string() if self.spec.kind == "labels" else pa.int64(),
            f"{self.name}_label": pa.string(),
            f"{self.name}_confidence": pa.float64(),
        }
        if self.spec.kind == "labels":
            found[f"{self.name}_label_probabilities"] = pa.string()
        if self.probabilities:
            found |= {f"{self.name}_p_{label}": pa.float64() for label in self.spec.labels}
        if self.threshold is not None:
            found[f"{self.name}_review"] = pa.bool_()
        return found

    def cells(self, answer: Prediction | None) -> list[Any]:
        """Return what stands in the columns for one answer; nothing where there is none."""
        if answer is None:
            return [None] * len(self.types())
        if answer.confidence is None:
            return [answer.value]
        cells: list[Any] = [answer.value, answer.label, answer.confidence]
        if isinstance(answer.value, tuple):
            each = (f"{p:.4f}" for p in answer.word_probabilities)
            value, label, chances = (
                self.separator.join(map(str, several))
                for several in (answer.value, answer.words, each)
            )
            cells = [value, label, answer.confidence, chances]
        cells += answer.probabilities if self.probabilities else ()
        return cells if self.threshold is None else [*cells, self.is_unsure(answer)]

    def table(self, answer: Prediction | None) -> dict[str, Any] | None:
        """Return the same as one table, for formats that have such."""
        if answer is None:
            return None
        if answer.confidence is None:
            return {"value": answer.value}
        several = isinstance(answer.value, tuple)
        label = answer.words if several else answer.label
        table: dict[str, Any] = {"value": answer.value, "label": label}
        table["confidence"] = round(answer.confidence, 6)
        if several:
            table["label_probabilities"] = [round(p, 6) for p in answer.word_probabilities]
        if self.probabilities:
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
