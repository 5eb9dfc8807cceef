"""Tasks with adapters, and tasks that leave the encoder alone, in the step and in a whole run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from plait.config import RunConfig, StageConfig
from plait.errors import EncoderError, RecipeError
from plait.inference.predictor import Predictor
from plait.methods.aggregators import AGGREGATORS
from plait.methods.losses import LOSSES
from plait.model.encoder import build_encoder, hub_weights
from plait.model.multitask import MultitaskModel
from plait.training.build import build
from plait.training.listeners import Listener
from plait.training.optimizer import build_optimizer, freeze, set_rate
from plait.training.run import train
from plait.training.step import Step, TaskParts

STAGE = StageConfig(lr=1e-2, weight_decay=0.1)
ADAPTED = {"same": {"name": "lora"}}


@pytest.fixture
def make_step(tiny_specs):
    def make(model, aggregator="sum", *, stage=STAGE, regularizers=()) -> Step:
        freeze(model, stage)
        optimizer = build_optimizer(model, stage)
        set_rate(optimizer, 1.0)
        parts = {
            task: TaskParts(LOSSES.build(s.kind.default_loss, "loss", s), 1.0, regularizers)
            for task, s in tiny_specs.items()
        }
        return Step(model.train(), parts, AGGREGATORS.build(aggregator, "x"), optimizer)

    return make


@pytest.fixture
def batches(tiny_specs, tiny_batch):
    return {task: tiny_batch(spec, 4, seed=i) for i, (task, spec) in enumerate(tiny_specs.items())}


def weights(model: MultitaskModel, start: str = "") -> dict[str, Tensor]:
    return {n: t.clone() for n, t in model.state_dict().items() if n.startswith(start)}


def moved(model: MultitaskModel, before: dict[str, Tensor]) -> set[str]:
    """Which parts of the model are no longer what they were."""
    state = model.state_dict()
    places = {n: ".".join(n.split(".")[: 1 if n.startswith("encoder") else 2]) for n in before}
    return {places[n] for n, t in before.items() if not torch.equal(t, state[n])}


# --- the step ----------------------------------------------------------------------------


@pytest.mark.parametrize("aggregator", ["sum", "pcgrad"])
def test_a_reader_alone_moves_its_adapter_and_head_and_nothing_else(
    tiny_model, make_step, batches, aggregator
):
    """Not even by weight decay, or by the momentum others left."""
    model = tiny_model(adapters=ADAPTED, readers=("same",))
    step = make_step(model, aggregator)
    step([batches])
    before = weights(model)
    step([{"same": batches["same"]}])
    assert moved(model, before) == {"heads.task-same", "adapters.task-same"}
    step([{"mood": batches["mood"]}])
    assert moved(model, before) >= {"encoder", "heads.task-mood"}


@pytest.mark.parametrize("aggregator", ["sum", "pcgrad"])
def test_the_encoder_does_not_notice_a_reader(tiny_model, make_step, batches, aggregator):
    with_reader = tiny_model(adapters=ADAPTED, readers=("same",))
    without = tiny_model(adapters=ADAPTED, readers=("same",))
    one, other = make_step(with_reader, aggregator), make_step(without, aggregator)
    assert len(one.gradients.rows) == (2 if aggregator == "pcgrad" else 1)
    rest = {task: batch for task, batch in batches.items() if task != "same"}
    for _ in range(2):
        torch.manual_seed(3)
        one([batches])
        torch.manual_seed(3)
        other([rest])
    for start in ("encoder.", "heads.task-mood.", "heads.task-near."):
        for name, tensor in weights(without, start).items():
            assert torch.equal(tensor, with_reader.state_dict()[name]), name
    first, second = (m.state_dict()["heads.task-same.out.weight"] for m in (with_reader, without))
    assert not torch.equal(first, second)


def test_an_adapter_of_a_task_that_trains_the_encoder(tiny_model, make_step, batches):
    model = tiny_model(adapters=ADAPTED)
    step = make_step(model)
    before = weights(model)
    for _ in range(2):
        step([{"same": batches["same"]}])
    assert moved(model, before) == {"encoder", "heads.task-same", "adapters.task-same"}
    before = weights(model)
    step([{"mood": batches["mood"]}])
    assert moved(model, before) == {"encoder", "heads.task-mood"}


# --- a whole run -------------------------------------------------------------------------

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij", "he", "she", "good", "bad"]


@pytest.fixture
def recipe(tmp_path: Path, tiny_encoder_config: dict[str, Any]):
    """Factory of a recipe over two small tasks and a tiny encoder, all on disk."""
    folder = tmp_path / "encoder"
    folder.mkdir()
    config = tiny_encoder_config | {"vocab_size": len(WORDS)}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    save_file(hub_weights(build_encoder(config)), folder / "model.safetensors")
    rows = [
        "text,label",
        *(f"{'he' if i % 3 else 'it'} good {'abc'[i % 3]},{i % 2}" for i in range(8)),
    ]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")

    def make(settings: dict[str, Any] | None = None, **given: Any) -> RunConfig:
        task = {"kind": "binary", "text": "text", "label": "label"}
        task |= {"train": "rows.csv", "dev": "rows.csv", "head": "linear"}
        table = {
            "name": "tiny",
            "device": "cpu",
            "listeners": (),
            "data": {"root": str(tmp_path)},
            "encoder": {"source": str(folder), "max_length": 16},
            "tasks": {"plain": task, "adapted": task | (settings or {})},
            "train": {"epochs": 1, "batch_size": 4, "lr": 1e-2, "layer_decay": 0.9},
        }
        return RunConfig.model_validate(table | given)

    return make


class Notes(Listener):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def note(self, text: str) -> None:
        self.heard.append(text)


@pytest.mark.parametrize("name", ["lora", "top"])
def test_two_updates_end_to_end(recipe, tmp_path, name):
    config = recipe({"adapter": name, "touch_encoder": False, "augment": "gender-swap"})
    notes = Notes()
    outcome = train(config, tmp_path / "run", listeners=[notes])
    assert outcome.result["steps"] >= 2
    assert "rows.csv: 8 rows, 5 more by gender-swap" in notes.heard
    saved = load_file(tmp_path / "run" / "model.safetensors")
    assert any(key.startswith("adapters.task-adapted.") for key in saved)
    predictor = Predictor.load(tmp_path / "run", device="cpu")
    assert predictor.evaluate("dev").to_json() == outcome.result["dev"]
    assert not predictor.model.touches_encoder("adapted")
    assert len(predictor.predict("adapted", ["he good", "she bad"])) == 2


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"adapter": "loras"}, r"tasks.adapted.adapter: no adapter 'loras'; did you mean 'lora'"),
        ({"adapter": {"name": "lora", "rnk": 2}}, "tasks.adapted.adapter.rnk is not a setting"),
        ({"adapter": {"name": "lora", "rank": 0}}, "tasks.adapted.adapter: rank must be 1"),
        ({"augment": "swap"}, r"tasks.adapted.augment.0: no augmentation 'swap'"),
        ({"augment": {"name": "gender-swap", "shares": 1.0}}, "augment.0.shares is not a setting"),
    ],
)
def test_recipes_that_get_it_wrong(recipe, settings, told):
    with pytest.raises(RecipeError, match=told):
        build(recipe(settings))


def test_an_adapter_in_another_architecture(recipe, tmp_path):
    pytest.importorskip("transformers")
    encoder = {"source": str(tmp_path / "encoder"), "max_length": 16, "architecture": "auto"}
    with pytest.raises(EncoderError, match="adapters go into plait's own BERT alone"):
        build(recipe({"adapter": "lora"}, encoder=encoder))
