"""How a run's rows become its batches: the layout and limits that all its tasks share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from plait.data.batches import collate, input_lengths, iterate

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
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

    def __call__(
        self,
        dataset: Dataset,
        rows: Tensor,
        spec: TaskSpec,
        *,
        length: int | None = None,
        total: int | None = None,
    ) -> Batch:
        """Return some rows as one batch, padded to `length` or to the longest."""
        return collate(
            dataset,
            rows,
            spec,
            self.layout,
            max_length=self.max_length,
            segments=self.segments,
            length=length,
            total=total,
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


@dataclass(frozen=True, slots=True)
class Rows:
    """A data set as one task reads it: row numbers become batches, wherever the data is."""

    dataset: Dataset
    spec: TaskSpec
    collator: Collator

    def __len__(self) -> int:
        return len(self.dataset)

    def __call__(
        self, rows: Tensor, *, length: int | None = None, total: int | None = None
    ) -> Batch:
        """Return some rows as one batch."""
        return self.collator(self.dataset, rows, self.spec, length=length, total=total)

    def lengths(self) -> Tensor:
        """Return the length of each input of each row, [inputs, rows]."""
        return input_lengths(
            self.dataset, self.spec, self.collator.layout, self.collator.max_length
        )

    def to(self, device: torch.device) -> Rows:
        """Return the same rows, to be collated on another device."""
        return replace(self, dataset=self.dataset.to(device))

    @property
    def num_bytes(self) -> int:
        """How much memory the tokens and labels take."""
        parts = [part for t in self.dataset.tokens for part in (t.ids, t.offsets, t.lengths)]
        labels = self.dataset.labels
        return sum(part.nbytes for part in parts) + (0 if labels is None else labels.nbytes)
