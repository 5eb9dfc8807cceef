"""Files in all their variety become the same encoder; its output becomes one vector per row."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from plait.errors import EncoderError
from plait.model.bert import Bert
from plait.model.encoder import (
    AutoEncoder,
    Encoded,
    Encoder,
    build_encoder,
    hub_weights,
    load_encoder,
    pool,
)
from plait.model.sources import find_encoder
from plait.types import Tokens

TINY: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "vocab_size": 40,
    "max_position_embeddings": 24,
    "initializer_range": 0.3,
}
MASK = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])
IDS = torch.arange(5, 19).view(2, 7).where(MASK, 0)
TOKENS = Tokens(IDS, torch.tensor([[0, 0, 0, 1, 1, 1, 1]] * 2).where(MASK, 0), MASK)


def tiny() -> Bert:
    bert = build_encoder(TINY)
    assert isinstance(bert, Bert)
    return bert.eval()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tiny BERT in the Hub's layout."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TINY))
    (folder / "vocab.txt").write_text("[PAD]\n")
    save_file(hub_weights(tiny()), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    path = folder / "model.safetensors"
    changed = change(load_file(path))
    path.unlink()
    save_file({n: t.contiguous() for n, t in changed.items()}, path, metadata={"format": "pt"})


def load(folder: Path, **settings: Any) -> Encoder:
    return load_encoder(find_encoder(str(folder)), **settings)


def same(a: Encoder, b: Encoder, tolerance: float = 0.0) -> None:
    with torch.no_grad():
        x, y = a.eval()(TOKENS), b.eval()(TOKENS)
    for one, other in zip(x.layers, y.layers, strict=True):
        torch.testing.assert_close(one[MASK], other[MASK], rtol=0, atol=tolerance)
    torch.testing.assert_close(x.pooled, y.pooled, rtol=0, atol=tolerance)


# --- plait's own BERT --------------------------------------------------------------------


def test_saved_and_loaded_is_the_same(folder: Path) -> None:
    loaded = load(folder)
    same(loaded, tiny())
    assert loaded.notes == ""
    assert (loaded.width, loaded.num_layers, loaded.max_positions, loaded.pad_id) == (16, 2, 24, 0)
    assert all(p.requires_grad and p.device.type == "cpu" for p in loaded.parameters())
    same(build_encoder(loaded.config), tiny())


def test_old_names_prefix_and_heads(folder: Path) -> None:
    def age(weights: dict[str, Tensor]) -> dict[str, Tensor]:
        def old(name: str) -> str:
            name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            return "bert." + name.replace("LayerNorm.bias", "LayerNorm.beta")

        weights = {old(name): tensor for name, tensor in weights.items()}
        weights["bert.embeddings.position_ids"] = torch.arange(24)[None]
        weights["cls.predictions.bias"] = torch.zeros(40)
        return weights

    rewrite(folder, age)
    same(load(folder), tiny())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_read_into_fp32(folder: Path, dtype: torch.dtype) -> None:
    rewrite(folder, lambda weights: {n: t.to(dtype) for n, t in weights.items()})
    loaded, rounded = load(folder), tiny()
    with torch.no_grad():
        for p in rounded.parameters():
            p.copy_(p.to(dtype))
    assert {p.dtype for p in loaded.parameters()} == {torch.float32}
    same(loaded, rounded)


def shard(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names, where = sorted(weights), {}
    for number, part in enumerate((names[:11], names[11:]), start=1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({n: weights[n] for n in part}, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def test_a_missing_pooler_is_drawn_the_same_each_time(folder: Path) -> None:
    rewrite(folder, lambda w: {n: t for n, t in w.items() if not n.startswith("pooler")})
    first, second = load(folder), load(folder)
    same(first, second)
    assert "no pooler" in first.notes
    weight = first.get_parameter("pooler.dense.weight")
    assert 0.2 < weight.std() < 0.4
    assert not first.get_parameter("pooler.dense.bias").any()


def test_a_wrong_shape_is_named_with_its_file(folder: Path) -> None:
    shard(folder)
    path = folder / "model-00002-of-00002.safetensors"
    weights = load_file(path)
    weights["pooler.dense.weight"] = torch.zeros(16, 15)
    path.unlink()
    save_file(weights, path)
    with pytest.raises(EncoderError) as caught:
        load(folder)
    assert str(path) in str(caught.value)
    assert "'pooler.dense.weight' has shape [16, 15]" in str(caught.value)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("config.json", "cannot be read as JSON"),
        ("model.safetensors", "not a readable safetensors"),
    ],
)
def test_broken_files_are_named(folder: Path, file: str, said: str) -> None:
    (folder / file).write_text("{nothing")
    with pytest.raises(EncoderError, match=said) as caught:
        load(folder)
    assert str(folder / file) in str(caught.value)


# --- pooling -----------------------------------------------------------------------------


def test_pooling() -> None:
    hidden = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(0))
    pooled = torch.randn(2, 16)
    encoded = Encoded(hidden, (hidden,), pooled)
    assert torch.equal(pool(encoded, MASK, "cls"), hidden[:, 0])
    assert pool(encoded, MASK, "cls-pooler") is pooled
    mean = pool(encoded, MASK, "mean")
    torch.testing.assert_close(mean[0], hidden[0].mean(0))
    torch.testing.assert_close(mean[1], hidden[1, :4].mean(0))
    half = Encoded(hidden.bfloat16(), (), None)
    assert pool(half, MASK, "mean").dtype == torch.float32
    assert pool(encoded, torch.zeros_like(MASK), "mean").isfinite().all()


# --- other architectures -----------------------------------------------------------------

OTHERS: dict[str, dict[str, Any]] = {
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "vocab_size": 40}
    | {"max_position_embeddings": 24},
    "roberta": {k: v for k, v in TINY.items() if k != "model_type"}
    | {"pad_token_id": 1, "type_vocab_size": 1},
}


@pytest.fixture(scope="module")
def transformers() -> Any:
    return pytest.importorskip("transformers")


def save_other(transformers: Any, kind: str, folder: Path) -> Any:
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **OTHERS[kind])
    model = transformers.AutoModel.from_config(config)
    model.save_pretrained(folder)
    (folder / "vocab.txt").write_text("[PAD]\n")
    return model.eval()


def test_auto_equals_our_bert(folder: Path, transformers: Any) -> None:
    auto, ours = load(folder, architecture="auto"), load(folder)
    assert isinstance(auto, AutoEncoder)
    same(auto, ours, 1e-5)
    for name in ("width", "num_layers", "max_positions", "pad_id", "has_pooler"):
        assert getattr(auto, name) == getattr(ours, name), name
    numbers = [auto.layer_of(name) for name, _ in auto.named_parameters()]
    assert sorted(set(numbers)) == [0, 1, 2, 3]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("kind", OTHERS)
def test_other_architectures(kind: str, tmp_path: Path, transformers: Any) -> None:
    reference = save_other(transformers, kind, tmp_path)
    encoder = load(tmp_path, architecture="auto").eval()
    pad = encoder.pad_id
    tokens = Tokens(IDS.where(MASK, pad), TOKENS.types, MASK)
    with torch.no_grad():
        output = encoder(tokens)
        again = encoder(tokens, encoder.word_embeddings(tokens.ids))
        expected = reference(input_ids=tokens.ids, attention_mask=MASK.long()).last_hidden_state
    torch.testing.assert_close(output.hidden[MASK], expected[MASK])
    torch.testing.assert_close(output.hidden[MASK], again.hidden[MASK])
    assert len(output.layers) == 3
    assert encoder.has_pooler == (output.pooled is not None) == (kind == "roberta")
    assert encoder.max_positions == (22 if kind == "roberta" else 24)
    numbers = {name: encoder.layer_of(name) for name, _ in encoder.named_parameters()}
    assert set(numbers.values()) == ({0, 1, 2, 3} if kind == "roberta" else {0, 1, 2})
    with pytest.raises(EncoderError, match='architecture = "auto"'):
        load(tmp_path)
