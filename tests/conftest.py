"""Fixtures that every test may use."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from plait.losses import DEFAULT_LOSSES, LOSSES
from plait.model.adapters import ADAPTERS
from plait.model.encoder import build_encoder
from plait.model.heads import HEADS
from plait.model.multitask import MultitaskModel
from plait.types import Batch, TaskSpec, Tokens


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with the real data and encoders (PLAIT_SHARED, or `shared` beside the checkout)."""
    folder = Path(os.environ.get("PLAIT_SHARED", Path(__file__).parents[2] / "shared"))
    if not (folder / "data" / "course").is_dir():
        pytest.skip("the real data is not at hand (set PLAIT_SHARED to its folder)")
    return folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests' token cache out of the user's."""
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "cache"))


# --- a model small enough to train in a test ---------------------------------------------

TINY_SPECS = {
    "mood": TaskSpec(kind="classes", labels=("bad", "so-so", "good"), text=("text",)),
    "same": TaskSpec(kind="binary", text=("a", "b")),
    "near": TaskSpec(kind="score", range=(0.0, 5.0), text=("a", "b"), inputs="apart"),
}


@pytest.fixture
def tiny_encoder_config() -> dict[str, Any]:
    """The config.json of a BERT of 2 layers, without dropout."""
    return {
        "model_type": "bert",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "vocab_size": 50,
        "max_position_embeddings": 32,
        "type_vocab_size": 2,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.2,  # large enough for mistakes to show
    }


@pytest.fixture
def tiny_specs() -> dict[str, TaskSpec]:
    """One task of each kind: one text, a joined pair, a pair apart."""
    return dict(TINY_SPECS)


@pytest.fixture
def tiny_model(tiny_encoder_config: dict[str, Any]) -> Callable[..., MultitaskModel]:
    """Factory: the tiny encoder with a head per task (linear unless given), always the same."""

    def make(
        specs: Mapping[str, TaskSpec] = TINY_SPECS,
        *,
        heads: Mapping[str, dict[str, Any]] | None = None,
        adapters: Mapping[str, dict[str, Any]] | None = None,
        readers: tuple[str, ...] = (),
        pooling: str = "mean",
        dropout: float = 0.0,
        seed: int = 0,
    ) -> MultitaskModel:
        encoder = build_encoder(tiny_encoder_config)
        encoder.set_dropout(dropout)
        given = heads or {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            made = {
                task: HEADS.build(
                    given.get(task, {"name": "linear", "dropout": dropout}),
                    f"tasks.{task}.head",
                    encoder.width,
                    LOSSES.build(DEFAULT_LOSSES[spec.kind], "loss", spec).num_outputs,
                    spec.inputs == "apart",
                )
                for task, spec in specs.items()
            }
            inside = {
                task: ADAPTERS.build(table, f"tasks.{task}.adapter", encoder.width, 2, 2)
                for task, table in (adapters or {}).items()
            }
        return MultitaskModel(encoder, made, pooling, inside, readers)

    return make


@pytest.fixture
def tiny_batch() -> Callable[..., Batch]:
    """Factory: a batch of random tokens and labels that suits a task."""

    def make(spec: TaskSpec, num_examples: int = 4, *, seed: int = 0, length: int = 7) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        rows = num_examples * (2 if spec.inputs == "apart" else 1)
        ids = torch.randint(1, 50, (rows, length), generator=generator)
        lengths = torch.randint(3, length + 1, (rows, 1), generator=generator)
        places = torch.arange(length)
        mask = places < lengths
        is_joined = spec.is_pair and spec.inputs == "joined"
        types = ((places >= lengths // 2) & mask & is_joined).long()
        if spec.kind == "score":
            low, high = spec.range
            labels = low + (high - low) * torch.rand(num_examples, generator=generator)
        else:
            labels = torch.randint(len(spec.labels), (num_examples,), generator=generator)
        if spec.kind == "binary":
            labels = labels.float()
        return Batch(Tokens(ids * mask, types, mask), labels)

    return make
