"""Pairs answered in both orders: the mean of the two, whoever answers, and the order is nothing."""

from __future__ import annotations

import json
import shutil
import tomllib

import numpy as np
import pytest
import tomli_w

import plait
from plait.config import read_recipe
from plait.errors import RecipeError, UsageError
from plait.export.run import export
from plait.inference.ensemble import make_ensemble
from plait.inference.predictor import Predictor
from plait.training.run import train

PAIRS = [("the film was great .", "a book"), ("the end", "the film was awful ."), ("a", "b c d")]
TURNED = [(second, first) for first, second in PAIRS]


@pytest.fixture
def run(tiny_run, tmp_path):
    """The tiny run, told to answer pairs of `same` in both orders."""
    folder = shutil.copytree(tiny_run, tmp_path / "run")
    recipe = tomllib.loads((folder / "recipe.toml").read_text(encoding="utf-8"))
    recipe["tasks"]["same"]["both_orders"] = True
    (folder / "recipe.toml").write_text(tomli_w.dumps(recipe), encoding="utf-8")
    return folder


def ask(model, task, rows):
    return model.answer(task, model.tokenise(rows))


def test_an_answer_is_the_mean_of_both_orders(run, tiny_run):
    model, plain = Predictor.load(run), Predictor.load(tiny_run)
    there, back = ask(plain, "same", PAIRS), ask(plain, "same", TURNED)
    assert abs(there - back).max() > 1e-4  # else the test says nothing
    assert ask(model, "same", PAIRS) == pytest.approx((there + back) / 2, abs=1e-6)
    assert ask(model, "same", TURNED) == pytest.approx(ask(model, "same", PAIRS), abs=1e-6)
    assert model.fingerprint() != plain.fingerprint()


def test_training_scores_as_answers_are_given(tiny_recipe, tmp_path):
    done = train(
        read_recipe(tiny_recipe(), ["tasks.same.both_orders=true", "train.max_steps=1"]),
        tmp_path / "run",
    )
    scores = Predictor.load(done.folder).evaluate()
    assert scores.primary == pytest.approx(done.result["dev"]["primary"])
    assert scores.tasks["same"].metrics == pytest.approx(
        done.result["dev"]["tasks"]["same"]["metrics"], abs=1e-6
    )


def test_an_ensemble_of_one_that_does_and_one_that_does_not(run, tiny_run, tmp_path):
    ensemble = plait.load(make_ensemble([run, tiny_run], tmp_path / "mixed", "mean"))
    each = [ask(Predictor.load(member), "same", PAIRS) for member in (run, tiny_run)]
    assert ask(ensemble, "same", PAIRS) == pytest.approx(np.mean(each, axis=0), abs=1e-6)


@pytest.mark.slow
def test_exports(run, tmp_path):
    pytest.importorskip("onnxruntime")
    folder = export(run, tmp_path / "onnx").folder
    model = plait.load(folder)
    wanted = ask(Predictor.load(run, device="cpu"), "same", PAIRS)
    assert ask(model, "same", PAIRS) == pytest.approx(wanted, abs=1e-5)
    facts = json.loads((folder / "export.json").read_text())["tasks"]
    assert [task for task, told in facts.items() if told.get("both_orders")] == ["same"]
    with pytest.raises(UsageError, match="averages both orders of a pair"):
        export(run, tmp_path / "hf", form="hf", tasks=["same"])


def test_one_text_has_no_order(tiny_recipe):
    with pytest.raises(RecipeError, match="both_orders needs two text columns"):
        read_recipe(tiny_recipe(), ["tasks.mood.both_orders=true"])
