"""How a run's rows become its batches: the layout and limits that all its tasks share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import pad

from plait.data.batches import collate, input_lengths, text_lengths
from plait.tasks import Binary, TaskSpec
from plait.types import Batch, Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from plait.data.store import Dataset
    from plait.data.tokens import Layout
    from plait.types import Truncate

ONE_TEXT = TaskSpec(kind=Binary(), text=("text",))
"""The spec of a row that is a single text without a task; its kind is not used."""


@dataclass(frozen=True, slots=True)
class Collator:
    """Makes batches of a task's rows."""

    layout: Layout
    max_length: int
    segments: bool = True
    truncate: Truncate = "head"

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
            truncate=self.truncate,
            length=length,
            total=total,
        )

    def iterate(
        self,
        dataset: Dataset,
        spec: TaskSpec,
        batch_size: int,
        rows: Tensor | None = None,
        room: int = 0,
    ) -> Iterator[tuple[Tensor, Batch]]:
        """Yield (row numbers, batch) over all rows, or those given, the longest first.

        Rows of like length come together, so a batch pads little, and a batch too large for the
        device's memory fails at once rather than at the end. `room` is for tokens, padding among
        them: a batch of short rows has more than `batch_size`, as many as fit.
        """
        lengths = text_lengths(dataset, spec, self.layout, self.max_length)
        if rows is None:
            rows = torch.arange(len(dataset))
        order = rows[torch.argsort(lengths[rows], descending=True, stable=True)]
        for some in order.split(_sizes(lengths[order], batch_size, room)):
            yield some, self(dataset, some, spec)


def _sizes(lengths: Tensor, least: int, room: int) -> list[int]:
    """Say how many of the rows, the longest first, come into each batch."""
    sizes, start = [], 0
    while start < len(lengths):
        sizes.append(min(max(least, room // max(1, int(lengths[start]))), len(lengths) - start))
        start += sizes[-1]
    return sizes


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

    def lay_out(self, device: torch.device) -> LaidOut:
        """Put every row's inputs together once, on a device."""
        lengths = self.lengths()
        num_inputs, length = len(lengths), int(lengths.max())
        shape = (len(self), num_inputs, length)
        ids, types, mask = (
            torch.empty(shape, dtype=dtype, device=device)
            for dtype in (torch.int32, torch.uint8, torch.bool)
        )
        for some in torch.arange(len(self)).split(8192):  # no more than these off the device
            tokens = self(some, length=length).tokens
            for whole, part in ((ids, tokens.ids), (types, tokens.types), (mask, tokens.mask)):
                # Of texts apart, all first ones come before all second ones.
                rows = part.to(whole.dtype).view(num_inputs, len(some), length).transpose(0, 1)
                whole[some[0] : some[-1] + 1] = rows.to(device)
        labels = self.dataset.labels
        return LaidOut(ids, types, mask, None if labels is None else labels.to(device))

    @property
    def num_bytes(self) -> int:
        """How much memory they take laid out, labels aside."""
        lengths = self.lengths()
        return lengths.numel() * int(lengths.max()) * (4 + 1 + 1)


@dataclass(frozen=True, slots=True)
class LaidOut:
    """Rows as finished inputs, padded to the longest: a batch is a few lookups."""

    ids: Tensor
    """int32 [rows, inputs, length]"""
    types: Tensor
    """uint8, of the same shape"""
    mask: Tensor
    """bool, of the same shape"""
    labels: Tensor | None

    def __call__(
        self, rows: Tensor, *, length: int, total: int | None = None, whole: int | None = None
    ) -> Batch:
        """Return some rows as one batch, cut or padded to `length`, which holds them all."""
        ids, types, mask = (
            part.index_select(0, rows).transpose(0, 1).flatten(0, 1)
            for part in (self.ids, self.types, self.mask)
        )
        if more := length - ids.shape[1]:  # below 0 it cuts; what padding holds is not looked at
            ids, types, mask = (pad(part, (0, more)) for part in (ids, types, mask))
        tokens = Tokens(ids.long(), types.long(), mask, total)
        labels = None if self.labels is None else self.labels.index_select(0, rows)
        return Batch(tokens, labels, whole)
