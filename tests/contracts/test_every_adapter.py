"""What every adapter must do, over all registered ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from plait.model.adapters import ADAPTERS
from plait.model.encoder import build_encoder
from plait.model.interface import Adapter, Encoder, LayerAdapter
from plait.types import Tokens

Make = Callable[..., Adapter]


@pytest.fixture
def encoder(tiny_encoder_config) -> Encoder:
    return build_encoder(tiny_encoder_config).eval()


@pytest.fixture
def tokens(tiny_batch, tiny_specs) -> Tokens:
    return tiny_batch(tiny_specs["same"], 5).tokens


@pytest.fixture
def make(adapter_table, encoder) -> Make:
    """Factory of the adapter, the same every time; nudged, it has no zeros to hide behind."""

    def build(*, nudged: bool = True) -> Adapter:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            shape = (encoder.width, encoder.num_layers, encoder.num_heads)
            adapter = ADAPTERS.build(adapter_table, "tasks.x.adapter", *shape).eval()
            if nudged:
                for parameter in adapter.parameters():
                    parameter.data += 0.3 * torch.randn_like(parameter)
        return adapter

    return build


def at_real_tokens(encoder: Encoder, tokens: Tokens, adapter: Adapter | None) -> Tensor:
    return encoder(tokens, None, adapter).hidden[tokens.mask]


def test_there_is_something_for_every_layer(make, encoder):
    assert all(isinstance(make().at(i), LayerAdapter) for i in range(encoder.num_layers))


def test_it_starts_near_the_plain_encoder_and_can_leave_it(make, encoder, tokens):
    plain = at_real_tokens(encoder, tokens, None)
    start = at_real_tokens(encoder, tokens, make(nudged=False))
    far = at_real_tokens(encoder, tokens, make())
    assert (start - plain).abs().max() < 0.05 * (far - plain).abs().max()
    assert far.isfinite().all()


def test_the_encoder_is_left_as_it_was(make, encoder, tokens):
    before = encoder(tokens)
    encoder(tokens, None, make())
    after = encoder(tokens)
    assert all(torch.equal(a, b) for a, b in zip(before.layers, after.layers, strict=True))


def test_gradients_reach_every_parameter_of_it(make, encoder, tokens):
    adapter = make()
    at_real_tokens(encoder, tokens, adapter)[:, 0].square().sum().backward()
    assert list(adapter.parameters())
    for name, parameter in adapter.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name


def test_padding_changes_nothing(make, encoder, tokens):
    padded = Tokens(
        *(torch.nn.functional.pad(t, (0, 4)) for t in (tokens.ids, tokens.types, tokens.mask))
    )
    adapter = make()
    torch.testing.assert_close(
        at_real_tokens(encoder, padded, adapter),
        at_real_tokens(encoder, tokens, adapter),
        rtol=0,
        atol=1e-5,
    )


def test_rows_do_not_touch_one_another(make, encoder, tokens):
    adapter = make()
    together = encoder(tokens, None, adapter).hidden
    alone = Tokens(tokens.ids[2:3], tokens.types[2:3], tokens.mask[2:3])
    torch.testing.assert_close(
        encoder(alone, None, adapter).hidden[0][tokens.mask[2]],
        together[2][tokens.mask[2]],
        rtol=0,
        atol=1e-5,
    )


def test_every_tensor_is_saved_once_and_comes_back(make, encoder, tokens):
    adapter, other = make(), make(nudged=False)
    state = adapter.state_dict()
    assert len({t.data_ptr() for t in state.values()}) == len(state)
    assert state.keys() == dict(adapter.named_parameters()).keys()
    other.load_state_dict(state)
    found = at_real_tokens(encoder, tokens, other)
    assert torch.equal(found, at_real_tokens(encoder, tokens, adapter))


def test_dropout_only_in_training(adapter_table, encoder, tokens):
    table = {**adapter_table, "dropout": 0.5}
    adapter = ADAPTERS.build(table, "tasks.x.adapter", 16, 2, 2)
    for parameter in adapter.parameters():
        torch.nn.init.normal_(parameter)
    torch.manual_seed(1)
    one, other = (at_real_tokens(encoder, tokens, adapter) for _ in range(2))
    assert not torch.equal(one, other)
    adapter.eval()
    one, other = (at_real_tokens(encoder, tokens, adapter) for _ in range(2))
    assert torch.equal(one, other)


def test_half_precision_passes_under_autocast(make, encoder, tokens):
    adapter = make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = at_real_tokens(encoder, tokens, adapter)
    wanted = at_real_tokens(encoder, tokens, adapter)
    plain = at_real_tokens(encoder, tokens, None)
    assert (found.float() - wanted).abs().mean() < 0.2 * (plain - wanted).abs().mean()
