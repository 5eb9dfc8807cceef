"""The best baseline of a task, and the sentence where a model does not beat it."""

from __future__ import annotations

import math

import pytest

from plait.cli.display import figure
from plait.config import RunConfig
from plait.inference.baselines import COSINE, FROZEN, TFIDF, best_of, list_shortfalls

FILES = {"train": "train.csv", "dev": "dev.csv", "label": "label"}
TASKS = {
    "topic": {"kind": "classes", "labels": ["a", "b"], "text": "text", **FILES},
    "near": {"kind": "score", "text": ["a", "b"], **FILES},
}


def tasks(*names, **changes):
    chosen = {name: TASKS[name] | changes for name in names}
    return RunConfig.model_validate({"name": "x", "tasks": chosen}).tasks


def result(value, figures, *, num_rows=300, task="topic"):
    """Return what scores.json has of one task."""
    return {
        "dev": {"primary": {task: value}, "tasks": {task: {"num_examples": num_rows}}},
        "baseline": {"primary": {task: 0.5}},
        "baselines": {task: figures},
    }


def test_the_best_figure():
    assert best_of({}) is None
    assert best_of({"a": None, "b": math.nan}) is None
    assert best_of({"a": -0.2, "b": math.nan, "c": -0.1, "d": None}) == ("c", -0.1)
    assert best_of({"a": 0.5, "b": 0.5}) == ("a", 0.5)


@pytest.mark.parametrize("value", [0.642, None, 0.675])
def test_a_model_that_does_not(value):
    (sentence,) = list_shortfalls(result(value, {FROZEN: 0.675}), tasks("topic"), figure)
    assert sentence == (
        f"topic: the model ({figure(value)}) does not beat frozen vectors + regression (.675) on "
        '300 dev rows: try more epochs (train.epochs), head = "regression" or a lower train.lr'
    )


def test_what_to_try_suits_the_task():
    low = result(0.1, {FROZEN: 0.675})
    (sentence,) = list_shortfalls(low, tasks("topic", head="regression"), figure)
    assert sentence.endswith("more epochs (train.epochs) or a lower train.lr")
    (sentence,) = list_shortfalls(low, tasks("topic", "near"), figure)
    assert sentence.endswith(" or the task alone (--each-alone)")
    low = result(0.1, {TFIDF: 0.6, COSINE: 0.7}, task="near")
    (sentence,) = list_shortfalls(low, tasks("near"), figure)
    assert 'inputs = "apart" with head = "cosine"' in sentence
    changed = tasks("near", inputs="apart", head="cosine", loss="cosine-mse")
    (sentence,) = list_shortfalls(low, changed, figure)
    assert "inputs" not in sentence
    (sentence,) = list_shortfalls(result(0.5, {}, num_rows=1), tasks("topic"), figure)
    assert "does not beat majority class (.500) on 1 dev row: try more epochs" in sentence
