"""Metrics against scikit-learn, scipy, hand-worked values; summaries; the scoring pass."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from plait.errors import RecipeError
from plait.inference.predictor import Predictor
from plait.tasks import TASK_KINDS, TaskSpec, metrics

CLOSE = {"abs": 1e-12, "rel": 1e-12, "nan_ok": True}
QUICK = settings(derandomize=True)

STARS = TaskSpec(kind="classes", labels=3, text="sentence")
SAME = TaskSpec(kind="binary", text=("a", "b"))
ALIKE = TaskSpec(kind="score", range=(0, 5), text=("a", "b"))


@st.composite
def class_pairs(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """True and predicted classes; often some classes are missing or one is all there is."""
    num_classes = draw(st.integers(2, 6))
    some = draw(st.lists(st.integers(0, num_classes - 1), min_size=1, max_size=3))
    size = draw(st.integers(1, 30))
    anything = st.integers(0, num_classes - 1)
    labels = draw(st.lists(anything, min_size=size, max_size=size))
    predicted = draw(st.lists(st.sampled_from(some), min_size=size, max_size=size))
    return labels, predicted, num_classes


@st.composite
def score_pairs(draw: st.DrawFn) -> tuple[list[float], list[float]]:
    """Two lists on a coarse grid: many ties, now and then all the same."""
    size = draw(st.integers(2, 40))
    few = st.integers(-8, 8).map(lambda i: i / 8)
    column = st.lists(few, min_size=size, max_size=size) | few.map(lambda v: [v] * size)
    return draw(column), draw(column)


def quiet(function, *arguments, **settings):
    """Call a reference that warns about degenerate input."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*arguments, **settings)


# --- any number of labels ----------------------------------------------------------------


@given(
    rows=st.integers(1, 20),
    labels=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
    threshold=st.sampled_from([0.3, 0.5, 0.8]),
)
def test_labels_equal_scikit_learn(rows, labels, seed, threshold):
    generator = np.random.default_rng(seed)
    true = generator.integers(0, 2, (rows, labels))
    chances = generator.choice([0.1, 0.3, 0.5, 0.55, 0.8, 0.95], (rows, labels))  # with ties
    spec = TaskSpec(kind="labels", labels=labels, text="text", threshold=threshold)
    scores = spec.kind.score(true, chances)
    guess = (chances >= threshold).astype(int)
    for mean in ("micro", "macro"):
        figure = quiet(sk.f1_score, true, guess, average=mean, zero_division=0)
        if labels > 1:
            assert scores.metrics[f"{mean}_f1"] == pytest.approx(figure)
    if labels > 1:  # else scikit-learn takes them for classes
        for name, function in (("precision", sk.precision_score), ("recall", sk.recall_score)):
            figure = quiet(function, true, guess, average="micro", zero_division=0)
            assert scores.metrics[f"micro_{name}"] == pytest.approx(figure)
    assert scores.metrics["subset_accuracy"] == pytest.approx(sk.accuracy_score(true, guess))
    there = [i for i in range(labels) if true[:, i].any()]
    each = [sk.average_precision_score(true[:, i], chances[:, i]) for i in there]
    assert scores.metrics["mean_average_precision"] == pytest.approx(
        np.mean(each) if each else math.nan, nan_ok=True
    )
    losses = [sk.log_loss(true[:, i], chances[:, i], labels=[0, 1]) for i in range(labels)]
    assert scores.metrics["log_loss"] == pytest.approx(np.mean(losses))
    assert [entry["support"] for entry in scores.per_class] == true.sum(axis=0).tolist()
    assert scores.confusion is None
    assert set(scores.metrics) == set(TASK_KINDS["labels"].metrics)


def test_golden_labels():
    spec = TaskSpec(kind="labels", labels=("a", "b", "c"), text="text")
    true = [[1, 0, 0], [1, 1, 0], [0, 0, 0], [0, 1, 0]]
    chances = [[0.9, 0.2, 0.1], [0.5, 0.4, 0.6], [0.2, 0.1, 0.3], [0.1, 0.8, 0.2]]
    figures = spec.kind.score(true, chances).metrics
    # a: both of two found. b: one of two found. c: found once, never there.
    assert figures["micro_precision"] == pytest.approx(3 / 4)
    assert figures["micro_recall"] == pytest.approx(3 / 4)
    assert figures["micro_f1"] == pytest.approx(3 / 4)
    assert figures["macro_f1"] == pytest.approx((1 + 2 / 3 + 0) / 3)
    assert figures["subset_accuracy"] == pytest.approx(3 / 4)
    assert figures["mean_average_precision"] == pytest.approx(1.0)  # c is left out
    assert spec.kind.score(np.zeros((0, 3)), np.zeros((0, 3))).metrics["micro_f1"] == 0
    with pytest.raises(ValueError, match="labels are"):
        spec.kind.score(true, np.zeros((4, 2)))


def test_baseline_of_labels_is_what_most_rows_have():
    spec = TaskSpec(kind="labels", labels=("a", "b"), text="text")
    guess = spec.kind.baseline([[1, 0], [1, 1], [0, 0], [1, 0]], 2)
    assert guess.tolist() == [[0.75, 0.25], [0.75, 0.25]]
    assert spec.kind.score([[1, 0], [0, 1]], guess).metrics["micro_f1"] == pytest.approx(0.5)


# --- against the references --------------------------------------------------------------


@QUICK
@given(class_pairs())
def test_class_metrics_equal_scikit_learn(drawn):
    labels, predicted, num_classes = drawn
    names = list(range(num_classes))
    assert metrics.accuracy(labels, predicted) == pytest.approx(
        sk.accuracy_score(labels, predicted), **CLOSE
    )
    confusion = metrics.confusion_matrix(labels, predicted, num_classes)
    np.testing.assert_array_equal(confusion, sk.confusion_matrix(labels, predicted, labels=names))
    theirs = sk.precision_recall_fscore_support(labels, predicted, labels=names, zero_division=0)
    for mine, reference in zip(metrics.precision_recall_f1(confusion), theirs, strict=False):
        np.testing.assert_allclose(mine, reference, rtol=0, atol=1e-12)


@QUICK
@given(class_pairs(), st.integers(0, 2**31))
def test_score_task_of_classes_equals_scikit_learn(drawn, seed):
    labels, _, num_classes = drawn
    spec = TaskSpec(kind="classes", labels=num_classes, text="sentence")
    # Sharp ones, so that some probabilities are next to nothing.
    probabilities = np.random.default_rng(seed).dirichlet([0.1] * num_classes, len(labels))
    scores = spec.kind.score(np.array(labels), probabilities)
    names = list(range(num_classes))
    predicted = probabilities.argmax(axis=1)
    precision, recall, f1, _ = sk.precision_recall_fscore_support(
        labels, predicted, labels=names, average="macro", zero_division=0
    )
    assert scores.metrics == pytest.approx(
        {
            "accuracy": sk.accuracy_score(labels, predicted),
            "macro_precision": precision,
            "macro_recall": recall,
            "macro_f1": f1,
            "log_loss": sk.log_loss(labels, probabilities, labels=names),
        },
        **CLOSE,
    )


@QUICK
@given(score_pairs())
def test_score_metrics_equal_scipy_and_scikit_learn(drawn):
    labels, predicted = drawn
    scores = ALIKE.kind.score(np.array(labels), np.array(predicted)).metrics
    assert scores == pytest.approx(
        {
            "pearson": quiet(stats.pearsonr, labels, predicted).statistic,
            "spearman": quiet(stats.spearmanr, labels, predicted).statistic,
            "mse": sk.mean_squared_error(labels, predicted),
            "mae": sk.mean_absolute_error(labels, predicted),
        },
        **CLOSE,
    )


# --- worked by hand ----------------------------------------------------------------------


def test_golden_classes():
    probabilities = [[0.5, 0.25, 0.25], [0.5, 0.5, 0.0], [0.1, 0.8, 0.1], [0.2, 0.6, 0.2]]
    scores = STARS.kind.score(np.array([0, 0, 1, 2]), np.array(probabilities))
    assert scores.confusion == [[2, 0, 0], [0, 1, 0], [0, 1, 0]]
    assert scores.num_examples == 4
    assert scores.metrics == pytest.approx(
        {
            "accuracy": 3 / 4,
            "macro_precision": (1 + 1 / 2 + 0) / 3,
            "macro_recall": 2 / 3,
            "macro_f1": (1 + 2 / 3 + 0) / 3,
            "log_loss": -(2 * math.log(0.5) + math.log(0.8) + math.log(0.2)) / 4,
        }
    )
    assert scores.per_class[1] == {
        "label": "1",
        "precision": 0.5,
        "recall": 1.0,
        "f1": pytest.approx(2 / 3),
        "support": 1,
    }


def test_golden_binary_takes_float_labels_and_its_own_words():
    labels = np.array([0.0, 1.0], dtype=np.float32)
    scores = SAME.kind.score(labels, np.array([[0.9, 0.1], [0.6, 0.4]]))
    assert scores.kind == "binary"
    assert scores.confusion == [[1, 0], [1, 0]]
    assert [row["label"] for row in scores.per_class] == ["no", "yes"]
    assert scores.metrics["accuracy"] == 0.5


def test_golden_score():
    scores = ALIKE.kind.score(np.array([1, 2, 3, 4]), np.array([1, 3, 2, 6]))
    assert scores.metrics == pytest.approx(
        {"pearson": 7 / math.sqrt(5 * 14), "spearman": 0.8, "mse": 6 / 4, "mae": 1.0}
    )
    assert scores.per_class == []
    assert scores.confusion is None


def test_a_certain_mistake_costs_a_finite_log_loss():
    assert metrics.log_loss([0], [[0.0, 1.0]]) == pytest.approx(52 * math.log(2))


# --- degenerate input --------------------------------------------------------------------


@pytest.mark.parametrize("correlation", [metrics.pearson, metrics.spearman])
@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([], []),
        ([1], [2]),
        ([1, 1, 1], [1, 2, 3]),
        ([1, 2, 3], [0.1, 0.1, 0.1]),
        ([1, 2, 3], [1, math.nan, 3]),
    ],
)
def test_no_correlation_is_nan(correlation, x, y):
    assert math.isnan(correlation(x, y))


def test_no_examples_are_nan_not_a_warning():
    scores = STARS.kind.score(np.zeros(0), np.zeros((0, 3)))
    assert math.isnan(scores.metrics["accuracy"])
    assert math.isnan(scores.metrics["log_loss"])
    assert scores.metrics["macro_f1"] == 0
    scores = ALIKE.kind.score(np.zeros(0), np.zeros(0))
    assert all(math.isnan(value) for value in scores.metrics.values())


# --- the figure that stands for a task ---------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "chosen", "message"),
    [
        (STARS, "acuracy", "did you mean 'accuracy'"),
        (STARS, "pearson", "does not suit a task of kind 'classes'"),
        (ALIKE, "accuracy", "known: pearson, spearman"),
        (ALIKE, "mse", "less of it is better.*choose one of pearson, spearman"),
    ],
)
def test_unsuitable_metric_is_refused(spec, chosen, message):
    with pytest.raises(RecipeError, match=message):
        metrics.primary_metric(spec.kind, chosen)


# --- several tasks -----------------------------------------------------------------------

COURSE = {"sst": TASK_KINDS["classes"], "quora": TASK_KINDS["binary"], "sts": TASK_KINDS["score"]}


@pytest.mark.parametrize(
    ("figures", "summary"),
    [
        ((0.545, 0.908, 0.894), {"overall": 0.800}),
        ((0.522, 0.877, 0.830), {"mean": 0.743}),
        ((0.505, 0.719, 0.656), {"sum": 1.880, "overall": 0.684}),
    ],
)
def test_published_summaries(figures, summary):
    mine = metrics.summarise(dict(zip(COURSE, figures, strict=True)), COURSE)
    assert {name: round(mine[name], 3) for name in summary} == summary


# --- the baseline ------------------------------------------------------------------------


def test_baseline_of_classes_is_the_majority():
    predictions = STARS.kind.baseline(np.array([1, 1, 0, 1]), 2)
    np.testing.assert_array_equal(predictions, [[0.25, 0.75, 0], [0.25, 0.75, 0]])
    scores = STARS.kind.score(np.array([1, 2]), predictions)
    assert scores.metrics["accuracy"] == 0.5


def test_baseline_of_a_score_is_the_mean():
    predictions = ALIKE.kind.baseline(np.array([1.0, 4.0], np.float32), 3)
    np.testing.assert_array_equal(predictions, [2.5, 2.5, 2.5])


# --- the scoring pass --------------------------------------------------------------------


@pytest.fixture
def predictor(tiny_run):
    return Predictor.load(tiny_run, device="cpu")


@pytest.fixture
def dev(predictor):
    return predictor.load_split("dev")


@pytest.mark.parametrize("task", ["mood", "same", "near"])
@pytest.mark.parametrize("rows", [[0], [3, 4, 9], [1, 5, 6, 7, 11]])
def test_some_rows_are_answered_as_among_all(predictor, dev, task, rows):
    every = predictor.scorer.answer(task, dev[task])
    some = predictor.scorer.answer(task, dev[task], torch.tensor(rows))
    assert every.shape == {"mood": (18, 3), "same": (16, 2), "near": (12,)}[task]
    assert some == pytest.approx(every[rows], abs=1e-6)


@pytest.mark.parametrize("batch_size", [1, 5, 1000])
def test_the_batch_size_does_not_show(predictor, dev, batch_size):
    other = replace(predictor.scorer, batch_size=batch_size)
    for task, dataset in dev.items():
        expected = predictor.scorer.answer(task, dataset)
        assert other.answer(task, dataset) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_scoring_leaves_the_model_in_its_mode(predictor, dev, training):
    model = predictor.model
    model.train(training)
    expected = predictor.scorer.answer("mood", dev["mood"])
    assert model.training is training
    assert all(module.training is training for module in model.modules())
    model.eval()
    assert (predictor.scorer.answer("mood", dev["mood"]) == expected).all()  # no dropout in either
