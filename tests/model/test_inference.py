"""A packed BERT answers as the one it was made of does."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from plait.model.bert import Bert, BertConfig
from plait.model.inference import (
    Int8Linear,
    Packed,
    pack,
    pack_linear,
    why_not,
)
from plait.types import Tokens


def form(name: str) -> str:
    if reason := why_not(name):
        assert "the CPU" in reason, "the installed torch has them, so this is a wrong call of ours"
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
    return Tokens(ids, ids % 2, mask)


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


@pytest.mark.parametrize("first_only", [True, False])
@pytest.mark.parametrize(("name", "near"), [("fp32", 1e-6), ("bf16", 3e-2), ("int8", 3e-2)])
@torch.inference_mode()
def test_the_encoder_is_the_same(bert, tokens, name, near, first_only):
    other = pack(copy.deepcopy(bert), form(name), first_only=first_only)
    want, got = bert(tokens), other(tokens)
    torch.testing.assert_close(got.pooled, want.pooled, rtol=near, atol=near)
    assert got.hidden.shape[1] == (1 if first_only else 7)
    there = tokens.mask[:, : got.hidden.shape[1]]
    expected = want.hidden[:, : got.hidden.shape[1]][there]
    torch.testing.assert_close(got.hidden[there], expected, rtol=near, atol=near)


@pytest.mark.parametrize("first_only", [True, False])
@torch.inference_mode()
def test_neither_company_nor_padding_changes_a_row(bert, tokens, first_only):
    other = pack(copy.deepcopy(bert), "fp32", first_only=first_only)
    together = other(tokens)
    for row, length in enumerate(tokens.mask.sum(1).tolist()):
        some = (part[row : row + 1, :length] for part in (tokens.ids, tokens.types, tokens.mask))
        alone = other(Tokens(*some))
        torch.testing.assert_close(together.pooled[row], alone.pooled[0], rtol=1e-6, atol=1e-6)
        kept = together.hidden[row, : 1 if first_only else length]
        torch.testing.assert_close(kept, alone.hidden[0], rtol=1e-6, atol=1e-6)


@torch.inference_mode()
def test_attention_in_spans_is_attention_row_by_row():
    draw = torch.Generator().manual_seed(0)
    lengths = [3, 20, 7, 19, 20, 1, 6]
    mask = torch.arange(20) < torch.tensor(lengths).unsqueeze(1)
    packed = Packed.of(mask)
    assert packed.num_tokens == sum(lengths)
    assert len(packed.source) == 80  # 76 and what fills up to a multiple of 8
    assert [span.length for span in packed.spans] == [20, 7, 3, 1]  # 19 with 20, and 6 with 7
    padded = torch.randn(7, 20, 3 * 8, generator=draw)
    mixed = packed.attend(padded.flatten(0, 1)[packed.source], num_heads=2)
    for row, length in enumerate(lengths):
        qkv = padded[row, :length].unflatten(-1, (3, 2, 4)).permute(1, 2, 0, 3)
        expected = torch.softmax(qkv[0] @ qkv[1].mT / 2, -1) @ qkv[2]
        mine = packed.source[: packed.num_tokens] // 20 == row
        torch.testing.assert_close(
            mixed[: packed.num_tokens][mine], expected.transpose(0, 1).flatten(1)
        )
