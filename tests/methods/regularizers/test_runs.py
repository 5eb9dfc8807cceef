"""Regularizers in a whole run, from the recipe to the scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from plait.config import RunConfig
from plait.errors import RecipeError
from plait.methods.regularizers import REGULARIZERS
from plait.methods.regularizers.bregman import Bregman
from plait.model.encoder import build_encoder, hub_weights
from plait.training.build import build
from plait.training.plan import Plan
from plait.training.run import train

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij"]


@pytest.fixture
def recipe(tmp_path: Path, tiny_encoder_config: dict[str, Any]):
    """Factory of a recipe over two small tasks and a tiny encoder, all on disk."""
    folder = tmp_path / "encoder"
    folder.mkdir()
    config = tiny_encoder_config | {"vocab_size": len(WORDS), "hidden_dropout_prob": 0.1}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    save_file(hub_weights(build_encoder(config)), folder / "model.safetensors")
    rows = ["text,label", *(f"{'abc'[i % 3]} {'defgh'[i % 5]},{i % 2}" for i in range(8))]
    (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
    task = {"text": "text", "label": "label", "train": "rows.csv", "dev": "rows.csv"}

    def make(*regularizers: Any) -> RunConfig:
        return RunConfig.model_validate(
            {
                "name": "tiny",
                "device": "cpu",
                "data": {"root": str(tmp_path)},
                "encoder": {"source": str(folder), "max_length": 16},
                "tasks": {
                    "one": {"kind": "binary", **task},
                    "two": {"kind": "score", "range": (0, 1), **task},
                },
                "train": {
                    "epochs": 2,
                    "batch_size": 4,
                    "lr": 1e-2,
                    "regularizers": regularizers,
                },
            }
        )

    return make


@pytest.mark.parametrize("name", sorted(REGULARIZERS))
def test_a_run_with_it(recipe, tmp_path, name):
    outcome = train(recipe(name), tmp_path / "run")
    assert outcome.result["steps"] == 8
    assert outcome.result["dev"]["tasks"].keys() == {"one", "two"}


def test_all_of_smart_at_once(recipe, tmp_path, monkeypatch):
    begun, followed = [], []
    begin, follow = Bregman.begin, Bregman.after_update

    def hear_begin(self, model, num_steps) -> None:
        begun.append(num_steps)
        begin(self, model, num_steps)

    def hear_follow(self, model, step) -> None:
        followed.append(step)
        follow(self, model, step)

    monkeypatch.setattr(Bregman, "begin", hear_begin)
    monkeypatch.setattr(Bregman, "after_update", hear_follow)
    train(recipe({"name": "smart", "weight": {"one": 5}}, "bregman"), tmp_path / "run")
    assert begun == [8]
    assert followed == list(range(1, 9))


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"name": "smrt"}, r"no regularizer 'smrt'; did you mean 'smart'"),
        ({"name": "smart", "weight": {"on": 1.0}}, r"weight names 'on'.*did you mean 'one'"),
        ({"name": "smart", "epsilon": 0.0}, "epsilon must be above 0"),
        ({"name": "smart", "step_size": 1.0}, "step_size is not a setting of regularizer 'smart'"),
    ],
)
def test_what_is_wrong_is_told_before_anything_is_loaded(recipe, table, told):
    config = recipe(table)
    with pytest.raises(RecipeError, match=rf"^stage\..*\.regularizers\.0.*{told}"):
        Plan.build(config)
    with pytest.raises(RecipeError):
        build(config)
