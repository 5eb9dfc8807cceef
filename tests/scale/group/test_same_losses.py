"""Runs of several workers are the runs of one: the same losses, scores and weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from launching import HERE, STILL, Norms, read_losses, read_norms, train_all
from safetensors.torch import load_file

from plait.config import read_recipe
from plait.training.runs import train

TOGETHER = "train.schedule={name='round-robin', together=true}"
VARIANTS: dict[str, list[str]] = {
    "plain": ["train.clip=0.5", "train.accumulate=2", "train.warmup=0.2"],
    # 13 of 45 rows a batch: shares differ, and the last batch is smaller than 4 workers are many.
    "uneven": ["train.batch_size=13", "train.early_stopping={patience=1}", "train.eval_every=4"],
    # One dev row scored: all workers but one have none.
    "few scored": [
        "train.batch_size=4",
        "train.train_limit=5",
        "train.eval_limit=1",
        "train.early_stopping={patience=1, per_task=true}",
        "train.eval_every=2",
    ],
    "fewer rows than workers": ["train.batch_size=1", "train.max_steps=9"],
    "pcgrad": [TOGETHER, "train.aggregator='pcgrad'"],
    "gradvac": [TOGETHER, "train.aggregator='gradvac'"],
    "famo": [TOGETHER, "train.weighting='famo'"],
    "uncertainty": ["train.weighting={name='uncertainty', lr=0.1}"],
    "dwa": ["train.weighting='dwa'", "train.epochs=3", "train.batch_size=24"],
    "smart": [
        f"plugins=['{HERE / 'steady.py'}']",
        "train.regularizers=[{name='smart', weight=2.0}, {name='bregman', weight=1.0, beta=0.9}]",
        "train.batch_size=9",
    ],
    "smart-unit": [
        f"plugins=['{HERE / 'steady.py'}']",
        "train.regularizers=[{name='smart-unit', weight=1.0}]",
        "train.max_steps=8",
    ],
    "pairs": [
        "stages=['before', 'finetune']",
        "stage.before.kind='simcse-pairs'",
        "stage.before.batch_size=7",
        "train.max_steps=5",
    ],
    "mlm": [
        "stages=['before', 'finetune']",
        "stage.before.kind='mlm'",
        "stage.before.batch_size=11",
        "train.max_steps=5",
    ],
    "regression": [
        "tasks.mood.head={name='regression', dropout=0}",
        "tasks.same.head={name='regression', dropout=0}",
        "tasks.same.inputs='apart'",
        "train.lr=1e-4",
        "train.max_steps=6",
    ],
    "contrast": [
        "stages=['before', 'finetune']",
        "stage.before.kind='contrast'",
        "stage.before.batch_size=11",
        "train.max_steps=5",
    ],
    "reptile": ["train.kind={name='reptile', inner_steps=2, inner_lr=0.05}", "train.batch_size=5"],
    "fomaml": [
        "train.kind={name='fomaml', inner_steps=2, inner_lr=0.05, inner_optimizer='adam'}",
        "train.batch_size=5",
    ],
    "adapters": [
        "tasks.mood.adapter='lora'",
        "tasks.same.touch_encoder=false",
        TOGETHER,
        "train.aggregator='pcgrad'",
        "train.max_steps=6",
    ],
    "heads alone": ["train.mode='last-layer'", "train.tasks=['mood', 'same']", "train.max_steps=6"],
    "distilled": ["train.kind={name='distill', teacher='TEACHER'}", "train.max_steps=6"],
    "distilled, without labels": [
        "train.kind={name='distill', teacher='TEACHER'}",
        "tasks.mood.unlabelled={path='mood-dev.csv', id=''}",
        "tasks.mood.dev='mood-train.csv'",
        "train.max_steps=6",
    ],
    "started": ["start='TEACHER'", "score_first=true", "train.eval_limit=7", "train.max_steps=6"],
    "balanced": ["tasks.mood.loss={name='cross-entropy', weights='balanced'}", "train.max_steps=6"],
}

FAST = ["uneven", "pcgrad", "smart", "mlm", "reptile", "started"]
"""Variants of the fast tests."""

SIMCSE = ["stages=['before', 'finetune']", "stage.before.kind='simcse'", "encoder.dropout=0.1"]


def overrides_of(name, teacher):
    """Return a variant's overrides; TEACHER is a run that was trained before."""
    more = SIMCSE if name == "simcse" else VARIANTS[name]
    return [*STILL, *(override.replace("TEACHER", str(teacher)) for override in more)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(scope="module")
def recipe(tiny_run):
    return tiny_run.parent / "tiny" / "recipe.toml"


@pytest.fixture(scope="module")
def alone(folder, recipe, tiny_run):
    """Return a function that trains a variant by one process, once."""
    noise = torch.randn_like

    def train_variant(name):
        out = folder / name
        if not out.exists():
            config = read_recipe(recipe, overrides_of(name, tiny_run))
            train(config, out, listeners=[Norms(out)])
            torch.randn_like = noise
        return out

    return train_variant


def start(num_workers, folder, recipe, teacher, names):
    """Train variants by one team, one after the other."""
    wanted = [
        {
            "recipe": str(recipe),
            "overrides": overrides_of(name, teacher),
            "out": str(folder / f"{name}-{num_workers}"),
        }
        # Those last whose plugin changes torch for good.
        for name in sorted(names, key=lambda name: "smart" in name)
    ]
    train_all(num_workers, folder, wanted)
    return folder


@pytest.fixture(scope="module")
def of_two(folder, recipe, tiny_run):
    return start(2, folder, recipe, tiny_run, FAST)


@pytest.fixture(scope="module")
def others_of_two(folder, recipe, tiny_run):
    others = [name for name in (*VARIANTS, "simcse") if name not in FAST]
    return start(2, folder, recipe, tiny_run, others)


@pytest.fixture(scope="module")
def of_four(folder, recipe, tiny_run):
    return start(4, folder, recipe, tiny_run, VARIANTS)


def compare(one: Path, many: Path) -> None:
    expected, found = read_losses(one), read_losses(many)
    assert len(expected) == len(found) > 3
    for line, other in zip(expected, found, strict=True):
        assert line["losses"].keys() == other["losses"].keys()
        for task, loss in line["losses"].items():
            assert other["losses"][task] == pytest.approx(loss, rel=2e-4, abs=2e-5), line["step"]
        assert line.get("conflicts", {}).keys() == other.get("conflicts", {}).keys()
    assert read_norms(many) == pytest.approx(read_norms(one), rel=5e-3, abs=1e-5)
    scores = [json.loads((run / "scores.json").read_text()) for run in (one, many)]
    assert scores[0]["steps"] == scores[1]["steps"]
    assert scores[0]["best_step"] == scores[1]["best_step"]
    for task, figure in scores[0]["dev"]["primary"].items():
        assert scores[1]["dev"]["primary"][task] == pytest.approx(figure, abs=2e-3)
    weights, others = (load_file(run / "model.safetensors") for run in (one, many))
    for name, weight in weights.items():
        torch.testing.assert_close(others[name], weight, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", FAST)
def test_two_workers_are_one(alone, of_two, name):
    compare(alone(name), of_two / f"{name}-2")


def test_what_a_team_leaves(of_two):
    """A line too many in the log, or a second process's leftovers, would show here."""
    run = of_two / f"{FAST[0]}-2"
    assert json.loads((run / "run.json").read_text())["workers"] == 2
    steps = [line["step"] for line in read_losses(run)]
    assert steps == sorted(set(steps))
    assert not list(run.glob(".*.tmp"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in FAST])
def test_two_workers_are_one_in_other_variants(alone, others_of_two, name):
    compare(alone(name), others_of_two / f"{name}-2")


@pytest.mark.slow
def test_two_workers_begin_with_the_same_heads(alone, others_of_two):
    first, other = (
        json.loads((run / "metrics.jsonl").read_text().splitlines()[0])
        for run in (alone("regression"), others_of_two / "regression-2")
    )
    assert (first["event"], first["step"]) == ("scores", 0)
    assert first == other


@pytest.mark.nightly
@pytest.mark.parametrize("name", VARIANTS)
def test_four_workers_are_one(alone, of_four, name):
    compare(alone(name), of_four / f"{name}-4")


@pytest.mark.slow
def test_simcse_sets_a_text_against_those_of_all_workers(alone, others_of_two):
    """Under dropout runs differ; against half as many texts the loss would be a quarter less."""
    means = []
    for run in (alone("simcse"), others_of_two / "simcse-2"):
        losses = [line["losses"].get("simcse") for line in read_losses(run)]
        told = [loss for loss in losses if loss is not None]
        means.append(sum(told) / len(told))
    assert means[1] == pytest.approx(means[0], rel=0.1)
