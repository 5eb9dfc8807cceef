"""plait's BERT equals transformers' in outputs and gradients, and may be entered at the words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from plait.errors import EncoderError
from plait.model.bert import Bert, BertConfig
from plait.model.encoder import build_encoder, hub_weights, load_encoder
from plait.model.sources import find_encoder
from plait.types import Tokens

TINY: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "vocab_size": 50,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "initializer_range": 0.3,  # large enough for mistakes to show
}


def make_tokens(
    lengths: list[int], vocab: int = 50, *, padded_to: int | None = None, segments: bool = True
) -> Tokens:
    """Random ids; the second half of each row is segment 1."""
    generator = torch.Generator().manual_seed(3)
    longest = padded_to or max(lengths)
    ids = torch.zeros(len(lengths), longest, dtype=torch.long)
    types, mask = torch.zeros_like(ids), torch.zeros_like(ids, dtype=torch.bool)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(1, vocab, (length,), generator=generator)
        mask[row, :length] = True
        if segments:
            types[row, length // 2 : length] = 1
    return Tokens(ids, types, mask)


INPUTS = {
    "full": make_tokens([9, 9, 9], segments=False),
    "segments": make_tokens([9, 9, 9]),
    "padded": make_tokens([9, 2, 5], segments=False),
    "padded-segments": make_tokens([9, 2, 5], padded_to=12),
}


def compare(ours: Bert, theirs: Any, tokens: Tokens, tolerance: float) -> None:
    """Check every output at the real tokens."""
    with torch.no_grad():
        mine = ours(tokens)
        reference = theirs(
            input_ids=tokens.ids,
            token_type_ids=tokens.types,
            attention_mask=tokens.mask.long(),
            output_hidden_states=True,
        )
    real = tokens.mask
    close = {"rtol": 0, "atol": tolerance}
    assert len(mine.layers) == len(reference.hidden_states)
    for a, b in zip(mine.layers, reference.hidden_states, strict=True):
        torch.testing.assert_close(a[real], b[real], **close)
    torch.testing.assert_close(mine.hidden[real], reference.last_hidden_state[real], **close)
    torch.testing.assert_close(mine.pooled, reference.pooler_output, **close)
    assert all(layer.isfinite().all() for layer in mine.layers)


@pytest.fixture(scope="module")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random BERT as transformers saves it."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    transformers.BertModel(transformers.BertConfig(**TINY)).save_pretrained(folder)
    (folder / "vocab.txt").write_text("[PAD]\n")
    return folder


def load_both(folder: Path | str, dtype: torch.dtype = torch.float32) -> tuple[Bert, Any]:
    transformers = pytest.importorskip("transformers")
    files = find_encoder(str(folder))
    ours = load_encoder(files)
    assert isinstance(ours, Bert)
    theirs = transformers.BertModel.from_pretrained(files.folder)
    return ours.to(dtype).eval(), theirs.to(dtype).eval()


@pytest.mark.parametrize("name", INPUTS)
def test_outputs_equal_transformers(tiny_folder: Path, name: str) -> None:
    compare(*load_both(tiny_folder), INPUTS[name], 1e-5)
    compare(*load_both(tiny_folder, torch.float64), INPUTS[name], 1e-12)


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu"])
def test_every_activation_equals_transformers(act: str) -> None:
    transformers = pytest.importorskip("transformers")
    ours = build_encoder(TINY | {"hidden_act": act})
    assert isinstance(ours, Bert)
    theirs = transformers.BertModel(transformers.BertConfig(**TINY, hidden_act=act))
    theirs.load_state_dict(hub_weights(ours))
    compare(ours.eval(), theirs.eval(), INPUTS["padded-segments"], 1e-5)


@pytest.fixture(params=["packaged", "e5-small"])
def real_encoder(request: pytest.FixtureRequest) -> Path | str:
    if request.param == "packaged":
        return packaged_or_skip()
    folder: Path = request.getfixturevalue("shared") / "encoders" / "e5-small"
    if not folder.is_dir():
        pytest.skip("e5-small is not at hand")
    return folder


def test_gradients_of_real_encoders_equal_transformers(real_encoder: Path | str) -> None:
    tokens = make_tokens([20, 3, 11], 30522, padded_to=24)
    assert largest_gradient_difference(*load_both(real_encoder), tokens) < 1e-4
    exact = load_both(real_encoder, torch.float64)
    assert largest_gradient_difference(*exact, tokens) < 1e-10


def test_real_encoders_equal_transformers(real_encoder: Path | str) -> None:
    ours, theirs = load_both(real_encoder)
    compare(ours, theirs, make_tokens([20, 20], 30522, segments=False), 1e-5)
    compare(ours, theirs, make_tokens([20, 3, 11], 30522, padded_to=24), 1e-5)


def packaged_or_skip() -> str:
    try:
        find_encoder("packaged")
    except EncoderError as error:
        pytest.skip(str(error))
    return "packaged"


def largest_gradient_difference(ours: Bert, theirs: Any, tokens: Tokens) -> float:
    """Compare every parameter's gradient, relative to its largest entry where that is above 1."""

    def scalar(layers: tuple[Tensor, ...], pooled: Tensor) -> Tensor:
        total = sum((i + 1) * layer[tokens.mask].sin().sum() for i, layer in enumerate(layers))
        return total + pooled.cos().sum()

    mine = ours(tokens)
    scalar(mine.layers, mine.pooled).backward()
    reference = theirs(
        input_ids=tokens.ids,
        token_type_ids=tokens.types,
        attention_mask=tokens.mask.long(),
        output_hidden_states=True,
    )
    scalar(reference.hidden_states, reference.pooler_output).backward()

    with torch.no_grad():  # a copy with gradients for weights, so that the Hub's names apply
        for parameter in ours.parameters():
            assert parameter.grad is not None
            parameter.copy_(parameter.grad)
    gradients = hub_weights(ours)
    assert gradients.keys() == dict(theirs.named_parameters()).keys()
    return max(
        float((gradients[name] - p.grad).abs().max() / p.grad.abs().max().clamp(min=1.0))
        for name, p in theirs.named_parameters()
    )


@pytest.mark.parametrize("name", ["full", "padded-segments"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-10)])
def test_gradients_equal_transformers(
    tiny_folder: Path, name: str, dtype: torch.dtype, tolerance: float
) -> None:
    assert largest_gradient_difference(*load_both(tiny_folder, dtype), INPUTS[name]) < tolerance


@pytest.fixture
def tiny() -> Bert:
    encoder = build_encoder(TINY)
    assert isinstance(encoder, Bert)
    return encoder.eval()


@torch.no_grad()
def test_perturbed_embeddings_equal_a_perturbed_table(tiny: Bert) -> None:
    ids = torch.arange(1, 13).view(2, 6)  # each token once: a row of the table per position
    tokens = Tokens(ids, torch.zeros_like(ids), torch.ones_like(ids, dtype=torch.bool))
    noise = torch.randn(2, 6, 24, generator=torch.Generator().manual_seed(1))
    perturbed = tiny(tokens, tiny.word_embeddings(ids) + noise).hidden
    assert not torch.allclose(perturbed, tiny(tokens).hidden, atol=0.1)
    tiny.embeddings.word.weight[ids] += noise
    torch.testing.assert_close(perturbed, tiny(tokens).hidden)


def test_dropout_is_set_everywhere(tiny: Bert) -> None:
    tokens = INPUTS["full"]
    quiet = tiny(tokens).hidden
    tiny.train()
    assert not torch.equal(tiny(tokens).hidden, quiet)
    tiny.set_dropout(0.0)
    assert torch.equal(tiny(tokens).hidden, quiet)
    tiny.set_dropout(0.25)
    assert tiny.layers[1].attention.dropout == 0.25
    assert tiny.embeddings.dropout.p == tiny.layers[2].dropout.p == 0.25


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "roberta"}, "model_type = 'roberta'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"is_decoder": True}, "is_decoder"),
        ({"hidden_act": "swish"}, "hidden_act = 'swish'"),
    ],
)
def test_other_models_are_sent_to_auto(change: dict[str, Any], said: str) -> None:
    with pytest.raises(EncoderError, match=said) as caught:
        BertConfig.from_json(TINY | change)
    assert 'architecture = "auto"' in str(caught.value)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": None}, "hidden_size: Field required"),
        ({"vocab_size": "many"}, "vocab_size: Input should be a valid integer"),
        ({"num_attention_heads": 5}, "is not divisible by 5 attention heads"),
        ({"num_hidden_layers": 0}, "below 1"),
    ],
)
def test_bad_settings_are_named(change: dict[str, Any], said: str) -> None:
    with pytest.raises(EncoderError, match=said):
        BertConfig.from_json(TINY | change)
