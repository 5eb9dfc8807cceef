"""Adapters against answers worked out by hand, and against the same sums in other words."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from plait.model.adapters import ADAPTERS, PAL
from plait.model.encoder import build_encoder
from plait.model.interface import Adapter
from plait.tasks import TaskSpec


def build(name: str, *shape: int, **settings: object) -> Adapter:
    """Make an adapter for an encoder of this width, number of layers and of heads."""
    return ADAPTERS.build({"name": name, **settings}, "tasks.x.adapter", *shape)


def put(parameter: Tensor, values: list[list[float]]) -> None:
    with torch.no_grad():
        parameter.copy_(torch.tensor(values))


# --- LoRA --------------------------------------------------------------------------------


def test_lora_adds_alpha_over_rank_b_a_x():
    lora = build("lora", 2, 1, 1, rank=1, alpha=3.0)
    updates = lora.layers[0].updates
    put(updates["query"].down, [[1.0, 2.0]])
    put(updates["query"].up, [[1.0], [-1.0]])
    put(updates["value"].down, [[0.5, 0.0]])
    put(updates["value"].up, [[0.0], [4.0]])
    hidden = torch.tensor([[[2.0, 1.0]]])
    found = lora.at(0).attention(torch.zeros(1, 1, 6), hidden)
    # query: A x = 4, B A x = (4, -4), times 3 / 1; value: A x = 1, B A x = (0, 4), times 3.
    assert found.flatten().tolist() == [12.0, -12.0, 0.0, 0.0, 0.0, 12.0]
    assert torch.equal(lora.at(0).output(hidden, hidden), hidden)
    assert torch.equal(lora.at(0).after(hidden, hidden, hidden), hidden)


def test_lora_equals_an_encoder_whose_weights_hold_the_update(tiny_encoder_config, tiny_batch):
    """W + (alpha / rank) B A, written into the weights of all four projections."""
    tokens = tiny_batch(TaskSpec(kind="binary", text=("a", "b"))).tokens
    plain, merged = build_encoder(tiny_encoder_config), build_encoder(tiny_encoder_config)
    targets = ("query", "key", "value", "output")
    lora = build("lora", 16, 2, 2, rank=3, alpha=6.0, targets=list(targets))
    for parameter in lora.parameters():
        nn.init.normal_(parameter, std=0.3)
    for layer, part in zip(merged.layers, lora.layers, strict=True):
        change = {n: 6.0 / 3 * (u.up @ u.down).detach() for n, u in part.updates.items()}
        layer.attention.qkv.weight.data += torch.cat([change[n] for n in targets[:3]])
        layer.attention.out.weight.data += change["output"]
    found, wanted = plain.eval()(tokens, None, lora).hidden, merged.eval()(tokens).hidden
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    assert not torch.allclose(found, plain(tokens).hidden, atol=1e-2)


# --- projected attention layers ----------------------------------------------------------


def test_pal_by_hand():
    """One head of size 1 over two tokens: V_E reads the first entry, V_D writes the second."""
    pal = build("pal", 2, 1, 1, size=1, heads=1, dropout=0.0)
    put(pal.shrink, [[1.0, 0.0]])
    put(pal.grow, [[0.0], [10.0]])
    put(pal.attentions[0].qkv, [[1.0], [1.0], [2.0]])  # query = key = x, value = 2 x
    hidden = torch.tensor([[[1.0, 5.0], [3.0, 7.0]]])
    total = torch.full((1, 2, 2), 100.0)
    mask = torch.ones(1, 1, 1, 2, dtype=torch.bool)
    found = pal.at(0).after(total, hidden, mask)
    for i, query in enumerate((1.0, 3.0)):
        weights = [math.exp(query * key) for key in (1.0, 3.0)]
        mixed = (2 * weights[0] + 6 * weights[1]) / sum(weights)
        assert found[0, i].tolist() == pytest.approx([100.0, 100.0 + 10 * mixed], rel=1e-5)
    # A padded token is not looked at.
    mask[..., 1] = False
    assert pal.at(0).after(total, hidden, mask)[0, 0].tolist() == pytest.approx([100.0, 120.0])


def test_pal_stands_before_the_last_layer_norm(tiny_encoder_config, tiny_batch, tiny_specs):
    """h' = LN(h + SA(h) + TS(h)), in the words of the paper, layer by layer."""
    encoder = build_encoder(tiny_encoder_config).eval()
    tokens = tiny_batch(tiny_specs["same"]).tokens
    pal = build("pal", 16, 2, 2, size=4, dropout=0.0)
    assert isinstance(pal, PAL)
    for parameter in pal.parameters():
        nn.init.normal_(parameter, std=0.5)
    mask = tokens.mask[:, None, None, :]
    hidden = encoder(tokens).layers[0]
    for layer, small in zip(encoder.layers, pal.attentions, strict=True):
        extra = small(hidden @ pal.shrink.T, mask) @ pal.grow.T
        middle = layer.attention_norm(hidden + layer.attention(hidden, mask))
        inner = layer.down(layer.activation(layer.up(middle)))
        hidden = layer.output_norm(middle + inner + extra)
    torch.testing.assert_close(encoder(tokens, None, pal).hidden, hidden, rtol=0, atol=1e-5)


def test_the_attention_of_pal_equals_torchs():
    pal = build("pal", 12, 1, 3, size=6, dropout=0.0)
    nn.init.normal_(pal.attentions[0].qkv)
    theirs = nn.MultiheadAttention(6, 3, bias=False, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(pal.attentions[0].qkv)
        theirs.out_proj.weight.copy_(torch.eye(6))
    small, real = torch.randn(2, 5, 6), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    wanted, _ = theirs(small, small, small, key_padding_mask=~real)
    found = pal.attentions[0](small, real[:, None, None, :])
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


# --- layers on top -----------------------------------------------------------------------


def make_torchs(part: nn.Module, heads: int) -> nn.Module:
    """Put one of our layers into torch's own, whose norms come first."""
    width, inner = part.out.out_features, part.up.out_features
    theirs = nn.TransformerEncoderLayer(
        width, heads, inner, 0.0, "gelu", layer_norm_eps=1e-12, batch_first=True, norm_first=True
    )
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(part.qkv.weight)
        theirs.self_attn.in_proj_bias.zero_()
    theirs.self_attn.out_proj.load_state_dict(part.out.state_dict())
    theirs.norm1.load_state_dict(part.attention_norm.state_dict())
    theirs.norm2.load_state_dict(part.norm.state_dict())
    theirs.linear1.load_state_dict(part.up.state_dict())
    theirs.linear2.load_state_dict(part.down.state_dict())
    return theirs


def test_layers_on_top_are_torchs_own(tiny_encoder_config, tiny_batch):
    tokens = tiny_batch(TaskSpec(kind="binary", text=("a", "b"))).tokens
    encoder = build_encoder(tiny_encoder_config).eval()
    top = build("top", 16, 2, 2, layers=2, heads=4, inner=24).eval()
    for parameter in top.parameters():
        nn.init.normal_(parameter, std=0.3)
    found = encoder(tokens, None, top)
    hidden = plain = encoder(tokens).hidden
    for part in top.layers:
        hidden = make_torchs(part, 4)(hidden, src_key_padding_mask=~tokens.mask)
    real = tokens.mask
    torch.testing.assert_close(found.hidden[real], hidden[real], rtol=0, atol=1e-5)
    assert not torch.allclose(hidden[real], plain[real], atol=1e-2)
    pooled = encoder.pooler(found.hidden)
    torch.testing.assert_close(found.pooled, pooled)
