"""Contrastive fine-tuning on labelled rows: the loss by hand, partners, names, who takes part."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from plait.config import read_recipe
from plait.data import Dataset
from plait.data.loading import load_data
from plait.tasks import TaskSpec
from plait.training.build import build, build_stage
from plait.training.run import train
from plait.training.stages.contrast import ContrastiveLoss, Partners

CLASSES = TaskSpec(kind="classes", labels=("a", "b", "c"), text="t")
LABELS = TaskSpec(kind="labels", labels=("a", "b", "c"), text="t")
SCORE = TaskSpec(kind="score", range=(1.0, 5.0), text="t")
STAGES = ["stages=['contrast', 'finetune']", "stage.contrast.kind='contrast'"]


# --- the loss ----------------------------------------------------------------------------


def by_hand(vectors, alike, temperature):
    """Compute equation 2 of Khosla et al. 2020, a row at a time; targets may be shares."""
    rows, count, total = range(len(vectors)), 0, 0.0
    unit = [vector / math.sqrt(sum(x * x for x in vector)) for vector in vectors]
    for i in rows:
        others = [j for j in rows if j != i]
        weight = sum(alike(i, j) for j in others)
        if weight == 0:
            continue
        whole = sum(math.exp(unit[i] @ unit[j] / temperature) for j in others)
        for j in others:
            part = math.exp(unit[i] @ unit[j] / temperature) / whole
            total -= alike(i, j) / weight * math.log(part)
        count += 1
    return total / max(count, 1)


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(6, 4))


def loss(spec, vectors, labels, temperature=0.5):
    return float(ContrastiveLoss(spec, temperature)(torch.from_numpy(vectors), labels))


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_classes_are_as_in_the_paper(vectors, temperature):
    labels = [0, 0, 1, 0, 2, 1]  # one row is like no other, and does not count
    expected = by_hand(vectors, lambda i, j: float(labels[i] == labels[j]), temperature)
    assert loss(CLASSES, vectors, torch.tensor(labels), temperature) == pytest.approx(
        expected, rel=1e-5
    )


def test_labels_are_alike_by_what_they_share(vectors):
    sets = [{0}, {0, 1}, {1, 2}, set(), set(), {0, 1, 2}]
    rows = torch.tensor([[float(label in own) for label in range(3)] for own in sets])

    def alike(i, j):
        whole = sets[i] | sets[j]
        return len(sets[i] & sets[j]) / len(whole) if whole else 1.0

    assert loss(LABELS, vectors, rows) == pytest.approx(by_hand(vectors, alike, 0.5), rel=1e-5)


def test_scores_are_alike_where_they_are_near(vectors):
    scores = [1.0, 1.2, 3.0, 3.0, 5.0, 4.6]
    expected = by_hand(vectors, lambda i, j: (1 - abs(scores[i] - scores[j]) / 4) ** 8, 0.5)
    assert loss(SCORE, vectors, torch.tensor(scores)) == pytest.approx(expected, rel=1e-4)


# --- partners ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "labels"),
    [
        (CLASSES, np.array([0, 1, 0, 2, 1, 0, 0])),
        (TaskSpec(kind="binary", text="t"), np.array([0.0, 1.0, 1.0, 0.0, 1.0])),
        (LABELS, np.array([[1, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0], [1, 1, 0], [1, 0, 0]])),
    ],
    ids=["classes", "binary", "labels"],
)
def test_partners_have_the_label_and_are_another_row(spec, labels):
    partners = Partners(spec, labels)
    rows = np.arange(len(labels))
    generator = np.random.default_rng(0)
    drawn = np.stack([partners.draw(rows, generator) for _ in range(200)])
    for row in rows:
        like = {j for j in rows if np.array_equal(labels[j], labels[row])}
        assert set(drawn[:, row]) == ((like - {row}) or {row})


def test_partners_of_a_score_are_near():
    scores = np.random.default_rng(0).uniform(size=100)
    drawn = Partners(SCORE, scores).draw(np.arange(100), np.random.default_rng(1))
    assert (drawn != np.arange(100)).all()
    assert np.abs(scores[drawn] - scores).max() < 0.25


# --- names -------------------------------------------------------------------------------


def make_stage(recipe, *overrides):
    config = read_recipe(recipe, [*STAGES, *overrides])
    parts = build(config)
    return parts, build_stage(parts, 0, load_data(config, parts.tokenizer, "train"))


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ("['bad', 'average', 'happy']", 3),
        ("['very_bad', 'average-film', 'happy']", 3),
        ("['bad', 'so-so', 'happy']", 0),
        ("['1 star', '2 stars', '3 stars']", 0),
        ("['a', 'b', 'c']", 0),
    ],
)
def test_names_are_rows_where_all_are_words(tiny_recipe, labels, names):
    path = tiny_recipe()
    words = "{bad=0, so-so=1, good=2}"
    mood = [f"tasks.mood.labels={labels}", f"tasks.mood.label_map={words}"]
    _, stage = make_stage(path, *mood, "stage.contrast.tasks=['mood']")
    assert stage.streams["contrast-mood"].num_examples == 45 + names


def test_names_have_the_tokens_and_label_of_their_class(tiny_recipe):
    words = "{bad=0, so-so=1, good=2}"
    mood = ["tasks.mood.labels=['bad', 'average', 'happy']", f"tasks.mood.label_map={words}"]
    parts, stage = make_stage(tiny_recipe(), *mood, "stage.contrast.tasks=['mood']")
    rows = torch.tensor([45, 3, 47])
    batch = stage.streams["contrast-mood"].make(rows, np.random.default_rng(0))
    assert batch.labels[[0, 2]].tolist() == [0, 2]
    assert len(batch.tokens.ids) == 6
    for place, name in ((0, "bad"), (2, "happy")):
        own = batch.tokens.ids[place][batch.tokens.mask[place]]
        named = Dataset.from_texts([(name,)], parts.tokenizer, 10).tokens[0]
        assert own[1:-1].tolist() == named.ids.tolist()


# --- who takes part ----------------------------------------------------------------------


def test_texts_apart_and_readers_take_no_part(tiny_recipe):
    _, stage = make_stage(tiny_recipe())
    assert list(stage.streams) == ["contrast-mood", "contrast-same"]
    _, stage = make_stage(tiny_recipe(), "tasks.mood.touch_encoder=false")
    assert list(stage.streams) == ["contrast-same"]


# --- runs --------------------------------------------------------------------------------


def test_the_loss_falls_and_classes_come_together(tiny_recipe, tmp_path):
    table = ["stage.contrast.tasks=['mood']", "stage.contrast.epochs=12", "train.lr=1e-2"]
    recipe = tiny_recipe()
    train(read_recipe(recipe, [*STAGES, *table, "log_every=3"]), tmp_path / "run")
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    losses = [line["losses"]["contrast-mood"] for line in lines if line.get("stage") == "contrast"]
    assert losses[-1] < 0.8 * losses[0]
