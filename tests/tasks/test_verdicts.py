"""Verdicts: which answers are wrong, and how badly, for every kind of task."""

from __future__ import annotations

import numpy as np

from plait.tasks import TaskSpec

MOOD = TaskSpec(kind="classes", labels=("bad", "so-so", "good"), text=("text",))
NEAR = TaskSpec(kind="score", range=(0.0, 5.0), text=("a", "b"))


def test_classes_are_ordered_by_confidence_in_the_wrong_class():
    answers = np.array([[0.1, 0.2, 0.7], [0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.6, 0.4, 0.0]])
    verdicts = MOOD.kind.judge([2, 1, 0, 2], answers)
    assert verdicts.metric == "accuracy"
    assert verdicts.quality.tolist() == [1, 0, 0, 0]
    assert verdicts.severity.tolist() == [0, 0.9, 0.5, 0.6]
    assert verdicts.order().tolist() == [1, 3, 2]
    assert verdicts.truths == ["good", "so-so", "bad", "good"]
    assert verdicts.answers == ["good", "bad", "so-so", "bad"]


def test_binary_labels_are_floats():
    spec = TaskSpec(kind="binary", text=("a", "b"))
    verdicts = spec.kind.judge(np.array([1.0, 0.0], np.float32), np.array([[0.8, 0.2], [0.7, 0.3]]))
    assert verdicts.order().tolist() == [0]
    assert (verdicts.truths[0], verdicts.answers[0]) == ("yes", "no")


def test_scores_are_ordered_by_distance():
    verdicts = NEAR.kind.judge([1.0, 2.0, 5.0], np.array([1.5, 2.0, 2.0]))
    assert verdicts.metric == "mae"
    assert verdicts.right is verdicts.confidences is None
    assert verdicts.order().tolist() == [2, 0]
    assert (verdicts.truths[0], verdicts.answers[0]) == ("1.00", "1.50")


def test_a_label_holds_from_the_threshold_on():
    spec = TaskSpec(kind="labels", labels=("glad", "tired", "calm"), text=("text",), threshold=0.75)
    answers = np.array([[0.75, 0.7, 0.1], [0.7, 0.8, 0.1]])
    verdicts = spec.kind.judge([[1, 0, 0], [1, 1, 0]], answers)
    assert verdicts.answers == ["glad", "tired"]
    assert verdicts.right.tolist() == [True, False]
