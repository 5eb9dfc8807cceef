"""What every architecture must be: an encoder that padding and its own words do not change."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest
import torch

from plait.model.encoder import build_encoder
from plait.model.interface import Encoder
from plait.types import Tokens


@pytest.fixture
def encoder(architecture_table, tiny_encoder_config) -> Encoder:
    """Each one, tiny and without dropout."""
    if architecture_table["name"] == "auto" and find_spec("transformers") is None:
        pytest.skip("transformers is not installed (pip install 'plait[auto]')")
    return build_encoder(tiny_encoder_config, architecture_table["name"]).eval()


@pytest.fixture
def tokens(tiny_batch, tiny_specs) -> Tokens:
    """A pair in one input."""
    return tiny_batch(tiny_specs["same"]).tokens


def test_it_says_what_it_gives(encoder, tokens):
    encoded = encoder(tokens)
    assert encoded.hidden.shape == (*tokens.ids.shape, encoder.width)
    assert (encoded.pooled is not None) == encoder.has_pooler
    assert encoder.word_table().shape[1] == encoder.width
    assert encoder.max_positions >= tokens.ids.shape[1]


def test_padding_changes_nothing(encoder, tokens):
    wide = (torch.nn.functional.pad(t, (0, 3)) for t in (tokens.ids, tokens.types, tokens.mask))
    length = tokens.ids.shape[1]
    torch.testing.assert_close(
        encoder(Tokens(*wide)).hidden[:, :length][tokens.mask], encoder(tokens).hidden[tokens.mask]
    )


def test_words_can_be_handed_in_and_what_they_become_be_shifted(encoder, tokens):
    words, real = encoder.word_embeddings(tokens.ids), tokens.mask
    plain = encoder(tokens).hidden[real]
    torch.testing.assert_close(encoder(tokens, words).hidden[real], plain)
    torch.testing.assert_close(encoder(tokens, None, None, 0 * words).hidden[real], plain)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(words.shape, generator=generator)
    assert not torch.allclose(encoder(tokens, words + noise).hidden[real], plain)
    assert not torch.allclose(encoder(tokens, None, None, noise).hidden[real], plain)


def test_every_parameter_sits_in_a_layer(encoder):
    places = {encoder.layer_of(name) for name, _ in encoder.named_parameters()}
    assert places <= set(range(encoder.num_layers + 2))
    assert 0 in places


def test_it_is_built_again_from_its_own_config(encoder, architecture_table):
    config = json.loads(json.dumps(encoder.config))
    again = build_encoder(config, architecture_table["name"])
    for (name, one), (same, other) in zip(
        encoder.state_dict().items(), again.state_dict().items(), strict=True
    ):
        assert name == same
        assert torch.equal(one, other), name


def test_dropout_can_be_set(encoder, tokens):
    encoder.set_dropout(0.5)
    encoder.train()
    assert not torch.equal(encoder(tokens).hidden, encoder(tokens).hidden)
