"""Probes become figures and careful words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from plait.analysis.audit import audit
from plait.analysis.audit.card import LEAST, find_praise, judge
from plait.inference.intervals import Interval
from plait.inference.predictor import Predictor
from plait.tasks import TaskSpec

MOOD = TaskSpec(kind="classes", labels=("bad", "so-so", "good"), text=("text",))
STARS = TaskSpec(kind="score", range=(1.0, 5.0), text=("text",))


def compare(kind, before, after):
    return kind.distance(before, after), kind.differs(before, after)


# --- changes -----------------------------------------------------------------------------


def test_classes_move_by_the_probability_that_moved():
    before = np.array([[0.5, 0.3, 0.2], [0.5, 0.5, 0.0]])
    after = np.array([[0.2, 0.6, 0.2], [0.6, 0.4, 0.0]])
    moved, flipped = compare(MOOD.kind, before, after)
    assert moved == pytest.approx([0.3, 0.1])
    assert flipped.tolist() == [True, False]


def test_scores_move_by_a_part_of_their_range():
    moved, flipped = compare(STARS.kind, np.array([1.0, 3.0]), np.array([3.0, 3.2]))
    assert moved == pytest.approx([0.5, 0.05])
    assert flipped.tolist() == [True, False]


@pytest.mark.parametrize(
    ("labels", "weights"),
    [
        (("very negative", "negative", "neutral", "Very Positive"), [-2, -1, 0, 2]),
        (("bad", "so-so", "good"), [-1, 0, 1]),
        (("negative", "somewhat negative", "positive"), [-1, -0.5, 1]),
        (("no", "yes"), None),
        (("payment", "delivery", "good"), None),
    ],
)
def test_praise_is_read_off_labels(labels, weights):
    spec = TaskSpec(kind="classes", labels=labels, text=("text",))
    found = find_praise(spec.kind, None)
    assert (None if found is None else found.tolist()) == weights


# --- words -------------------------------------------------------------------------------


RIGHT = {"share": 0.9, "interval": [0.8, 1]}
MANY = 30


@pytest.mark.parametrize(
    ("given", "more", "verdict"),
    [
        (("stay", LEAST - 1, 0.0, (0, 0)), {}, ("not judged", "too few texts (9)")),
        (("stay", MANY, 0.0, (0, 0.04)), {}, ("no effect", "changes at most 5% of predictions")),
        (("stay", MANY, 0.2, (0.1, 0.3)), {}, ("effect", "changes more than 5% of predictions")),
        (("stay", MANY, 0.05, (0.01, 0.1)), {}, ("unclear", "changes 1% to 10% of predictions")),
        (
            ("move", MANY, 0.25, (0.2, 0.4)),
            {},
            ("no effect", "the model ignored the change in 75% of pairs (60% to 80%)"),
        ),
        (
            ("move", MANY, 0.25, (0.2, 0.4)),
            {"is_directed": True},
            ("not judged", "not judged: name the positive label with --positive"),
        ),
        (
            ("move", MANY, 0.2, (0, 1)),
            {"right_way": RIGHT, "is_directed": True},
            ("effect", "moves the right way in 90% (80% to 100%)"),
        ),
        (
            ("agree", MANY, 0.2, (0.1, 0.3)),
            {},
            ("effect", "20% of equal pairs get another prediction than most (10% to 30%)"),
        ),
        (
            ("stay", MANY, 0.5, (0.4, 0.6)),
            {"neutral": {"farther_interval": [0.01, 0.1]}},
            ("effect", "changes predictions more than a neutral swap"),
        ),
        (
            ("stay", MANY, 0.5, (0.4, 0.6)),
            {"neutral": {"farther_interval": [-0.1, 0.1]}},
            ("no effect", "no significant effect beyond a neutral swap"),
        ),
    ],
)
def test_verdicts_say_what_was_measured(given, more, verdict):
    should, sources, changed, ends = given
    assert judge(should, sources, changed, Interval(*ends), **more) == verdict


# --- a run -------------------------------------------------------------------------------


@pytest.fixture
def model(tiny_run: Path) -> Predictor:
    return Predictor.load(tiny_run)


@pytest.fixture
def rows(model: Predictor) -> dict[str, list[tuple[str, ...]]]:
    return {name: d.texts() for name, d in model.load_split("dev", labelled=False).items()}


def test_every_kind_of_task_has_a_card(model, rows):
    card = audit(model, rows, most=10).to_json()
    json.dumps(card, allow_nan=False)
    assert {line["task"] for line in card["summary"]} == {"mood", "same", "near"}
    keys = {"probe", "task", "count", "changed", "mean_change", "verdict"}
    assert all(set(line) == keys for line in card["summary"])
    for line, result in zip(card["summary"], card["probes"], strict=True):
        assert 0 <= line["changed"] <= 1
        assert 0 <= line["mean_change"] <= 1
        low, high = result["mean_change_interval"]
        assert low <= line["mean_change"] <= high
        assert 1 <= len(result["examples"]) <= 5
    by_name = {(r["task"], r["probe"]): r for r in card["probes"]}
    assert by_name["mood", "'not', own sentences"]["right_way"]["share"] >= 0
    # The tokenizer is blind to case and spaces, and so is the model.
    for noise in ("small letters", "wide spaces"):
        found = [r for r in card["probes"] if r["probe"] == noise]
        assert all(r["changed"] == 0 and r["mean_change"] < 1e-6 for r in found)
    # The cosine of two texts apart is the same in either order, and of equal ones 1.
    assert by_name["near", "texts in the other order"]["mean_change"] < 1e-6
    assert by_name["near", "a text beside itself"]["mean_change"] < 1e-6
