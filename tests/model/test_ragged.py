"""Layers without padding do what padded ones do."""

from __future__ import annotations

import pytest
import torch

from plait.model.bert import Bert, BertConfig
from plait.model.ragged import Places
from plait.types import Tokens

MASK = torch.arange(4) < torch.tensor([4, 1, 3]).unsqueeze(1)


def test_there_and_back():
    places = Places.of(MASK)
    assert places is not None
    assert places.index.tolist() == [0, 1, 2, 3, 4, 8, 9, 10]
    rows = torch.arange(24.0).view(3, 4, 2)
    assert torch.equal(places.scatter(places.gather(rows)), rows * MASK.unsqueeze(-1))


def test_nothing_to_leave_out():
    assert Places.of(torch.ones(3, 4, dtype=torch.bool)) is None


def test_gradients_of_both_ways():
    places = Places.of(MASK)
    assert places is not None
    rows = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(places.gather, rows)
    torch.autograd.gradgradcheck(lambda x: places.gather(x) ** 2, rows)
    tokens = torch.randn(8, 2, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(places.scatter, tokens)
    torch.autograd.gradgradcheck(lambda x: places.scatter(x) ** 2, tokens)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_training_is_the_same_with_and_without_padding(dropout, monkeypatch):
    bert = Bert(BertConfig(16, 2, 2, 32, 30))
    bert.init_weights(torch.Generator().manual_seed(0))
    bert.set_dropout(dropout)
    bert.train()
    ids = torch.randint(30, (3, 4), generator=torch.Generator().manual_seed(1))
    tokens = Tokens(ids, torch.zeros_like(ids), MASK)

    def run() -> tuple[torch.Tensor, list[torch.Tensor]]:
        torch.manual_seed(5)
        encoded = bert(tokens)
        real = encoded.hidden[MASK]
        loss = real.square().sum() + encoded.pooled.sum()
        return real, list(torch.autograd.grad(loss, list(bert.parameters())))

    without = run()
    monkeypatch.setattr(Places, "of", classmethod(lambda cls, mask: None))
    torch.testing.assert_close(without, run(), rtol=1e-4, atol=1e-5)
