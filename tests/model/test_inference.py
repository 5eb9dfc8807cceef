"""A packed BERT answers as the one it was made of does."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from plait.model import inference
from plait.model.bert import Bert, BertConfig
from plait.model.inference import Int8Linear, pack, pack_linear, why_not
from plait.types import Tokens


def form(name: str) -> str:
    if reason := why_not(name):
        pytest.skip(f"{name}: {reason}")
    return name


@pytest.fixture
def bert() -> Bert:
    config = BertConfig(16, 2, 2, 32, 30)
    made = Bert(config)
    made.init_weights(torch.Generator().manual_seed(0))
    return made.eval()


@pytest.fixture
def tokens() -> Tokens:
    ids = torch.randint(30, (5, 7), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(7) < torch.tensor([7, 3, 5, 1, 7]).unsqueeze(1)
    return Tokens(ids, torch.zeros_like(ids), mask)


@pytest.mark.parametrize(("name", "near"), [("fp32", 1e-6), ("bf16", 1e-2), ("int8", 1e-2)])
def test_a_product_is_the_linears(name, near):
    torch.manual_seed(0)
    linear, x = nn.Linear(24, 8), torch.randn(3, 5, 24)
    found = pack_linear(linear.weight, linear.bias, form(name))(x)
    torch.testing.assert_close(found, linear(x), rtol=near, atol=near)
    assert found.dtype == torch.float32


def test_int8_by_hand():
    form("int8")
    # Scales 2/127 and 4/127; 1.0 of 4.0 is 31.75 of 127, which rounds to 32.
    product = Int8Linear(torch.tensor([[2.0, 0.0], [0.0, -2.0]]), torch.tensor([0.5, 0.0]))
    expected = torch.tensor([[2 * 4 * 32 / 127 + 0.5, 8.0]])
    torch.testing.assert_close(product(torch.tensor([[1.0, -4.0]])), expected)


@torch.inference_mode()
def test_int8_of_a_token_depends_on_no_other():
    form("int8")
    torch.manual_seed(0)
    product, x = Int8Linear(torch.randn(8, 24), torch.randn(8)), torch.randn(6, 24)
    x[3] *= 100
    assert torch.equal(product(x)[0], product(x[:1])[0])
    assert torch.equal(product(torch.zeros(1, 24))[0], product.bias)


@pytest.mark.parametrize("first_only", [True, False])
@pytest.mark.parametrize(("name", "near"), [("fp32", 1e-6), ("bf16", 3e-2), ("int8", 3e-2)])
@torch.inference_mode()
def test_the_encoder_is_the_same(bert, tokens, name, near, first_only):
    other = pack(copy.deepcopy(bert), form(name), first_only=first_only)
    want, got = bert(tokens), other(tokens)
    torch.testing.assert_close(got.pooled, want.pooled, rtol=near, atol=near)
    torch.testing.assert_close(got.hidden[:, 0], want.hidden[:, 0], rtol=near, atol=near)
    assert got.hidden.shape[1] == (1 if first_only else 7)


def test_what_cannot_be_had_is_left_alone(bert, monkeypatch):
    monkeypatch.setattr(inference, "why_not", lambda form: "not here")
    assert pack(bert, "bf16", first_only=True) is None
    assert isinstance(bert.layers[0].up, nn.Linear)
