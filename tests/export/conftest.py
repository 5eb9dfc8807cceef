"""Runs of every shape that an export meets, trained and exported once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from plait.config import read_recipe
from plait.export.run import export
from plait.inference.fitting.calibrate import calibrate
from plait.training.run import train

MORE_TASKS = """
[tasks.moods]
kind = "labels"
labels = ["glad", "tired"]
text = "text"
label = "moods"
head = "linear"
train = "{folder}/moods.csv"
dev = "{folder}/moods.csv"

[tasks.beside]
kind = "classes"
labels = ["bad", "so-so", "good"]
text = "text"
label = "label"
train = "mood-train.csv"
dev = "mood-dev.csv"
adapter = "pal"
head = "mlp"

[tasks.merged]
kind = "binary"
text = ["a", "b"]
label = "label"
train = "same-train.csv"
dev = "same-dev.csv"
adapter = {{ name = "lora", targets = ["query", "key", "value", "output"] }}
loss = "cross-entropy"
head = "linear"

[tasks.apart]
kind = "score"
range = [0, 5]
text = ["a", "b"]
inputs = "apart"
label = "score"
train = "near-train.csv"
dev = "near-dev.csv"
adapter = "lora"
head = {{ name = "linear", features = ["u", "v", "|u-v|", "u*v", "cos"] }}
"""

JOINED_SCORES = """
[tasks.scored]
kind = "score"
range = [0, 5]
text = ["a", "b"]
label = "score"
train = "near-train.csv"
dev = "near-dev.csv"
loss = "mse"
head = "linear"

[tasks.shared]
kind = "score"
range = [0, 5]
text = ["a", "b"]
label = "score"
train = "near-train.csv"
dev = "near-dev.csv"
head = "linear"
"""

MOODS = """text,moods
the film was happy .,glad
the book was dull and weak .,tired
the walk was happy and dull .,glad;tired
the song was plain .,
"""

TrainTiny = Callable[..., Path]


@pytest.fixture(scope="session")
def train_tiny(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainTiny:
    """Factory: train the tiny recipe under overrides, with more tasks where given."""

    def make(*overrides: str, more: str = "") -> Path:
        folder = tmp_path_factory.mktemp("exports")
        source = tiny_run.parent / "tiny" / "recipe.toml"
        (folder / "moods.csv").write_text(MOODS, encoding="utf-8")
        recipe = folder / "recipe.toml"
        text = source.read_text(encoding="utf-8") + more.format(folder=folder)
        recipe.write_text(text, encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PLAIT_CACHE", str(folder / "cache"))
            return train(read_recipe(recipe, list(overrides)), folder / "run").folder

    return make


@pytest.fixture(scope="session")
def rich_run(train_tiny: TrainTiny) -> Path:
    """A calibrated run with a task of every kind, and adapters of every kind."""
    run = train_tiny(more=MORE_TASKS)
    calibrate(run, device="cpu", offsets=True)
    return run


@pytest.fixture(scope="session")
def exported(rich_run: Path) -> Path:
    """Its graphs, in fp32."""
    pytest.importorskip("onnxruntime")
    return export(rich_run).folder


@pytest.fixture(scope="session")
def classifier_run(train_tiny: TrainTiny) -> Path:
    """A calibrated run that transformers' classifier can express: [CLS], pooler, linear."""
    run = train_tiny("encoder.pooling=cls-pooler", more=JOINED_SCORES + MORE_TASKS)
    calibrate(run, device="cpu", offsets=True)
    return run
