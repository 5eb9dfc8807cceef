"""Packing: without its padding a batch is encoded as with it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from plait.model.packing import Packing
from plait.types import Tokens


def make_mask(lengths: list[int], length: int) -> Tensor:
    return torch.arange(length) < torch.tensor(lengths).unsqueeze(1)


def test_places_by_hand() -> None:
    packing = Packing.of(make_mask([2, 3], 4), room=7)
    assert packing.source.tolist() == [0, 1, 4, 5, 6, 0, 0]
    assert packing.target.tolist() == [0, 1, 4, 5, 6, 8, 8]
    # Rows [0, 2) and [2, 5), then what fills up, cut into rows of 4 at most.
    assert packing.bounds.tolist() == [0, 2, 5, 7, 7]


def test_what_is_unpacked_is_what_was_packed() -> None:
    mask = make_mask([3, 1, 5], 5)
    padded = torch.randn(3, 5, 4)
    packing = Packing.of(mask, room=12)
    packed = packing.pack(padded)
    assert packed.shape == (12, 4)
    assert torch.equal(packed[:9], padded[mask])
    assert torch.equal(packing.unpack(packed), padded * mask.unsqueeze(-1))


@pytest.mark.parametrize("room", [17, 24])
def test_a_bert_encodes_the_same_without_padding(tiny_model, room: int) -> None:
    model = tiny_model(dropout=0.0).double().train()
    mask = make_mask([4, 10, 3], 10)
    ids = torch.randint(5, 40, mask.shape, generator=torch.Generator().manual_seed(0)) * mask
    types = ((torch.arange(10) > 2) & mask).long()
    tokens = Tokens(ids, types, mask)
    found = []
    for given in (tokens, replace(tokens, total=room)):
        model.zero_grad()
        words = model.encoder.word_embeddings(ids).detach().requires_grad_()
        plain = model.encoder(given)
        entered = model.encoder(given, words)
        real = mask.unsqueeze(-1)
        weights = torch.arange(plain.hidden.numel()).view(plain.hidden.shape) % 7
        ((plain.hidden + 2 * entered.hidden) * real * weights).sum().backward()
        gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
        assert words.grad is not None
        found.append((plain.hidden * real, plain.pooled, gradients, words.grad * real))
        assert bool(plain.layers) is (given.total is None)  # the way was really another one
    padded, packed = found
    assert torch.allclose(padded[0], packed[0], atol=1e-12)
    assert torch.allclose(padded[1], packed[1], atol=1e-12)
    assert padded[2].keys() == packed[2].keys()
    for name, gradient in padded[2].items():
        assert torch.allclose(gradient, packed[2][name], atol=1e-9), name
    assert torch.allclose(padded[3], packed[3], atol=1e-9)
