"""How a run's rows become its batches: the layout and limits that all its tasks share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.data.batches import collate, iterate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from plait.data.store import Dataset
    from plait.data.tokens import Layout
    from plait.types import Batch, TaskSpec


@dataclass(frozen=True, slots=True)
class Collator:
    """Makes batches of a task's rows."""

    layout: Layout
    max_length: int
    segments: bool = True

    def __call__(self, dataset: Dataset, rows: Tensor, spec: TaskSpec) -> Batch:
        """Return some rows as one batch."""
        return collate(
            dataset,
            rows,
            spec,
            self.layout,
            max_length=self.max_length,
            segments=self.segments,
        )

    def iterate(
        self, dataset: Dataset, spec: TaskSpec, batch_size: int, rows: Tensor | None = None
    ) -> Iterator[tuple[Tensor, Batch]]:
        """Yield (row numbers, batch) over all rows, or those given, like lengths together."""
        return iterate(
            dataset,
            batch_size,
            spec,
            self.layout,
            max_length=self.max_length,
            segments=self.segments,
            rows=rows,
        )
