"""What every kind of stage must do, over all registered ones."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from plait.config import read_recipe
from plait.data import Dataset
from plait.data.loading import load_data
from plait.training.build import build
from plait.training.stages import STAGE_KINDS, Material


@pytest.fixture(scope="module")
def built(tiny_run):
    """Parts and training data of the tiny recipe."""
    parts = build(read_recipe(tiny_run.parent / "tiny" / "recipe.toml"))
    return parts, load_data(parts.config, parts.tokenizer, "train")


@pytest.fixture
def parts(built):
    return replace(built[0], model=deepcopy(built[0].model))


@pytest.fixture
def make(parts, built, stage_kind_table):
    """Factory: the kind's objectives of the tiny recipe's data, and of a few pairs."""
    train = built[1]
    pairs = [("the film was fine", "a fine film"), ("the book", "a book"), ("great song", "song")]
    given = Dataset.from_texts(pairs, parts.tokenizer, parts.config.encoder.max_length)

    def start():
        kind = STAGE_KINDS.build(from_texts(stage_kind_table), "stage.x.kind")
        texts = dict.fromkeys(kind.texts, given)
        answers = {task: answer(parts.tasks[task], len(rows)) for task, rows in train.items()}
        material = Material(
            parts.model.encoder, parts.tokenizer, parts.collator, parts.tasks, train, texts, answers
        )
        torch.manual_seed(0)
        return kind, kind.objectives(material)

    return start


def answer(task, num_rows):
    """Answer as a teacher might who knows nothing."""
    spec = task.spec
    if spec.kind.name == "score":
        return torch.full((num_rows,), sum(spec.range) / 2)
    return torch.full((num_rows, len(spec.labels)), 1 / len(spec.labels))


def from_texts(table):
    """Give a kind that leaves out the tasks something to train on."""
    return table | {"texts": ["pairs"]} if table.get("from_tasks") is False else table


def batches(objectives, place=0):
    for name, objective in objectives.items():
        drawn = [np.random.default_rng(place)] if objective.draws else []
        yield name, objective, objective.make(torch.tensor([0, 2, 1]), *drawn)


def test_a_batch_has_a_finite_loss_and_reaches_the_encoder(make, parts):
    kind, objectives = make()
    assert objectives
    for name, objective, batch in batches(objectives):
        assert objective.num_examples > 0
        assert (objective.head is not None) == kind.pretrains == (name not in parts.tasks)
        if objective.head is not None:
            parts.model.add_head(name, objective.head)
        parts.model.zero_grad()
        loss = objective.loss(parts.model(name, batch.tokens), batch.labels)
        assert loss.ndim == 0
        assert torch.isfinite(loss)
        loss.backward()
        for layer in parts.model.encoder.layers:
            assert layer.up.weight.grad.abs().sum() > 0
        own = parts.model.head_parameters(name).values()
        assert all(parameter.grad is not None for parameter in own)


def test_as_many_labels_as_rows_were_asked_for(make):
    for _, _, batch in batches(make()[1]):
        assert len(batch.labels) == 3
        assert len(batch.tokens.ids) % 3 == 0


def test_the_same_place_gives_the_same_batch_and_head(make):
    for (_, one, a), (_, other, b) in zip(
        batches(make()[1], 5), batches(make()[1], 5), strict=True
    ):
        assert torch.equal(a.tokens.ids, b.tokens.ids)
        assert torch.equal(a.labels, b.labels)
        if one.head is not None:
            for p, q in zip(one.head.parameters(), other.head.parameters(), strict=True):
                assert torch.equal(p, q)


def test_every_number_below_the_count_is_a_row(make):
    for _, objective, _ in batches(make()[1]):
        drawn = [np.random.default_rng(0)] if objective.draws else []
        batch = objective.make(torch.arange(objective.num_examples), *drawn)
        assert len(batch.labels) == objective.num_examples
        assert batch.tokens.mask.any(1).all()
