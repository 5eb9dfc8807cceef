"""Rows of a Dataset become padded Batches, by tensor arithmetic without a loop over rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from plait.types import Batch, Tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from plait.data.store import Dataset, Ragged
    from plait.data.tokens import Layout
    from plait.tasks import TaskSpec
    from plait.types import Truncate


class _Piece(NamedTuple):
    """One row's stretch of a Ragged, for every row of a batch."""

    flat: Tensor
    starts: Tensor
    """[rows]: where each stretch begins in `flat`."""
    lengths: Tensor
    """[rows]"""
    left_out: Tensor | None = None
    """[rows]: tokens passed over in the middle of each; none unless given."""


def collate(
    dataset: Dataset,
    rows: Tensor,
    spec: TaskSpec,
    layout: Layout,
    *,
    max_length: int,
    segments: bool = True,
    truncate: Truncate = "head",
    length: int | None = None,
    total: int | None = None,
) -> Batch:
    """Return rows (int64 [n]) of a dataset as a batch, padded to `length` or to the longest.

    Inputs longer than `max_length` lose their end, or their middle where `truncate` says so; of a
    joined pair the longer text loses first (longest_first, token for token as the tokenizers
    library does it). `length` bounds them, too. Where texts are encoded apart, the batch has all
    first texts, then all second. `total` is how many real tokens there are at most, for those who
    know.
    """
    limit = max_length if length is None else min(max_length, length)
    if max_length - layout.num_single > dataset.limit:
        raise ValueError(f"the dataset holds {dataset.limit} tokens a text: too few")
    if spec.is_pair and spec.inputs == "joined":
        kept = _fit_pairs(dataset, rows, limit - layout.num_pair)
        around: Sequence[tuple[int, ...]] = layout.pair
        inputs = [[_cut(t, rows, k, truncate) for t, k in zip(dataset.tokens, kept, strict=True)]]
    else:
        room = limit - layout.num_single
        around = layout.single
        inputs = [[_cut(t, rows, _fit(t, rows, room), truncate)] for t in dataset.tokens]
    if length is None:
        length = sum(map(len, around))
        if len(rows):
            totals = [torch.stack([p.lengths for p in pieces]).sum(0) for pieces in inputs]
            length += int(torch.stack(totals).max())
    second_type = layout.second_type if segments else 0
    parts = [_assemble(around, pieces, second_type, layout.pad_id, length) for pieces in inputs]
    tokens = parts[0]
    if len(parts) == 2:
        first, last = parts
        tokens = Tokens(
            torch.cat([first.ids, last.ids]),
            torch.cat([first.types, last.types]),
            torch.cat([first.mask, last.mask]),
        )
    tokens = replace(tokens, total=total)
    return Batch(tokens, None if dataset.labels is None else dataset.labels[rows])


def text_lengths(dataset: Dataset, spec: TaskSpec, layout: Layout, max_length: int) -> Tensor:
    """Return every row's input length, special tokens included: int64 [rows].

    Of texts encoded apart, the longer one's.
    """
    return input_lengths(dataset, spec, layout, max_length).amax(0)


def input_lengths(dataset: Dataset, spec: TaskSpec, layout: Layout, max_length: int) -> Tensor:
    """Return the length of each of a row's inputs, special tokens included: int64 [inputs, rows].

    A row has two inputs where its texts are encoded apart.
    """
    everything = torch.arange(len(dataset))
    if spec.is_pair and spec.inputs == "joined":
        first, second = _fit_pairs(dataset, everything, max_length - layout.num_pair)
        return (first + second + layout.num_pair).unsqueeze(0)
    room = max_length - layout.num_single
    fits = [_fit(t, everything, room) for t in dataset.tokens]
    return torch.stack(fits) + layout.num_single


def uncut_lengths(dataset: Dataset, spec: TaskSpec, layout: Layout) -> Tensor:
    """Return the length of each of a row's inputs if nothing were cut: int64 [inputs, rows]."""
    lengths = torch.stack([text.lengths.long() for text in dataset.tokens])
    if spec.is_pair and spec.inputs == "joined":
        return lengths.sum(0, keepdim=True) + layout.num_pair
    return lengths + layout.num_single


# --- cutting -------------------------------------------------------------------------------


def _fit(texts: Ragged, rows: Tensor, room: int) -> Tensor:
    """Return how many tokens to keep of each text on its own: int64 [rows]."""
    return texts.lengths[rows].long().clamp(max=max(room, 0))


def _fit_pairs(dataset: Dataset, rows: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """Return how many tokens to keep of each text of a pair that shares `room`.

    The shorter text stays whole while the longer one alone can make room; beyond that each
    gets half, the odd token going to the longer (to the second, if they are equally long).
    That depends on the lengths before storing cut them, which is why those are kept.
    """
    room = max(room, 0)
    first, second = (t.lengths[rows].long() for t in dataset.tokens)
    shorter, longer = torch.minimum(first, second), torch.maximum(first, second)
    halved = 2 * shorter > room
    low = shorter.masked_fill(halved, room // 2)
    high = torch.minimum(longer, room - shorter).masked_fill(halved, room - room // 2)
    swapped = first > second
    return torch.where(swapped, high, low), torch.where(swapped, low, high)


def _cut(texts: Ragged, rows: Tensor, kept: Tensor, truncate: Truncate) -> _Piece:
    starts = texts.offsets[rows]
    if truncate == "head":
        return _Piece(texts.ids, starts, kept)
    # What is stored ends with the text's own end, so the middle of it is what can go.
    return _Piece(texts.ids, starts, kept, texts.offsets[rows + 1] - starts - kept)


# --- padding -------------------------------------------------------------------------------


def _assemble(
    around: Sequence[tuple[int, ...]],
    pieces: Sequence[_Piece],
    second_type: int,
    pad_id: int,
    width: int,
) -> Tokens:
    """Lay special tokens and pieces in turn into rows of `width`."""
    starts = pieces[0].starts
    place = torch.arange(width).unsqueeze(0)  # [1, width]
    cursor = torch.zeros_like(starts).unsqueeze(1)  # [rows, 1]
    ids = torch.full((len(starts), width), pad_id)
    second = place.new_zeros((len(starts), width), dtype=torch.bool)

    def lay_special(tokens: tuple[int, ...]) -> None:
        nonlocal ids, cursor
        for token in tokens:
            ids = ids.masked_fill(place == cursor, token)
            cursor = cursor + 1

    for i, piece in enumerate(pieces):
        lay_special(around[i])
        if i == 1:
            second = place >= cursor
        inside = place - cursor  # place within the piece
        here = (inside >= 0) & (inside < piece.lengths.unsqueeze(1))
        if piece.flat.numel():  # else every text is empty
            source = piece.starts.unsqueeze(1) + inside
            if piece.left_out is not None:
                head = (piece.lengths - piece.lengths // 2).unsqueeze(1)
                source = source + (inside >= head) * piece.left_out.unsqueeze(1)
            source = source.clamp(0, piece.flat.numel() - 1)
            ids = torch.where(here, piece.flat[source].long(), ids)
        cursor = cursor + piece.lengths.unsqueeze(1)
    lay_special(around[-1])
    mask = place < cursor
    return Tokens(ids, (second & mask).long() * second_type, mask)
