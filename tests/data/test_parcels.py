"""Parcels: a batch that travels is the batch that arrives."""

from __future__ import annotations

import torch

from plait.data import Parcel
from plait.types import Batch, Tokens

CPU = torch.device("cpu")


def make_batch(rows: int, length: int, labels: bool = True) -> Batch:
    ids = torch.arange(rows * length).view(rows, length)
    mask = torch.arange(length) < torch.arange(1, rows + 1).unsqueeze(1)
    tokens = Tokens(ids * mask, torch.zeros_like(ids), mask)
    return Batch(tokens, torch.arange(rows) if labels else None)


def test_it_arrives_as_it_was() -> None:
    batch = make_batch(3, 5)
    parcel = Parcel.of(batch)
    arrived = parcel.batch(CPU)
    assert parcel.num_examples == 3
    assert torch.equal(arrived.tokens.ids, batch.tokens.ids)
    assert torch.equal(arrived.tokens.mask, batch.tokens.mask)
    assert arrived.labels is not None
    assert torch.equal(arrived.labels, torch.arange(3))
    assert Parcel.of(make_batch(3, 5, labels=False)).batch(CPU).labels is None


def test_equal_sizes_have_equal_keys() -> None:
    assert Parcel.of(make_batch(3, 5)).key == Parcel.of(make_batch(3, 5)).key
    assert Parcel.of(make_batch(3, 5)).key != Parcel.of(make_batch(3, 6)).key
    assert Parcel.of(make_batch(3, 5)).key != Parcel.of(make_batch(2, 5)).key


def test_filling_up_adds_padding_and_nothing_else() -> None:
    batch = make_batch(3, 5)
    filled = Parcel.filled(batch, pad_id=77, most=512).batch(CPU)
    assert filled.tokens.ids.shape == (3, 8)
    assert torch.equal(filled.tokens.ids[:, :5], batch.tokens.ids)
    assert (filled.tokens.ids[:, 5:] == 77).all()
    assert not filled.tokens.mask[:, 5:].any()
    assert filled.tokens.total == 8  # 1 + 2 + 3 real ones, rounded up
    assert Parcel.filled(batch, 77, 512).key == Parcel.filled(make_batch(3, 7), 77, 512).key
