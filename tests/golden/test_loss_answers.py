"""Losses against answers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor

from plait.errors import RecipeError
from plait.methods.losses import LOSSES, Loss
from plait.tasks import TaskSpec

CLASSES = TaskSpec(kind="classes", labels=("a", "b", "c"), text=("text",))
BINARY = TaskSpec(kind="binary", text=("a", "b"))
LABELS = TaskSpec(kind="labels", labels=("a", "b", "c"), text=("text",))
SCORE = TaskSpec(kind="score", range=(0.0, 5.0), text=("a", "b"), inputs="apart")
COSINES = (-1.0, -0.5, 0.0, 0.5, 1.0)


def build(name: str, spec: TaskSpec, **settings: object) -> Loss:
    return LOSSES.build({"name": name, **settings}, "loss", spec)


def column(*values: float) -> Tensor:
    return torch.tensor(values).unsqueeze(1)


def close(actual: Tensor, expected: float | list[float]) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected), rtol=1e-5, atol=1e-6)


def test_cross_entropy():
    loss = build("cross-entropy", CLASSES)
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    # log(e^2 + e + 1) = 2.407606
    for label, expected in enumerate((0.407606, 1.407606, 2.407606)):
        close(loss(logits, torch.tensor([label])), expected)
    close(loss(logits.repeat(2, 1), torch.tensor([0, 2])), 1.407606)
    close(loss.decode(logits), [[0.665241, 0.244728, 0.090031]])


def test_label_smoothing_mixes_in_the_mean_over_the_classes():
    loss = build("cross-entropy", CLASSES, smoothing=0.1)
    # 0.9 x 0.407606 + 0.1 x (0.407606 + 1.407606 + 2.407606) / 3
    close(loss(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0])), 0.507606)


def test_cross_entropy_of_a_yes_or_no_takes_two_logits():
    loss = build("cross-entropy", BINARY)
    assert loss.num_outputs == 2
    # Only the difference of the two counts: -log sigmoid(1.5)
    close(loss(torch.tensor([[0.5, 2.0]]), torch.tensor([1.0])), 0.201413)


def test_bce_is_minus_log_sigmoid():
    loss = build("bce", BINARY)
    assert loss.num_outputs == 1
    close(loss(column(0.0), torch.tensor([1.0])), math.log(2))
    close(loss(column(1.5), torch.tensor([1.0])), 0.201413)
    close(loss(column(1.5), torch.tensor([0.0])), 1.701413)
    close(loss(column(1.5, 1.5), torch.tensor([1.0, 0.0])), (0.201413 + 1.701413) / 2)
    close(loss.decode(column(0.0, 1.5)), [[0.5, 0.5], [0.182426, 0.817574]])


def test_bce_of_labels_is_the_mean_over_them():
    loss = build("label-bce", LABELS)
    assert loss.num_outputs == 3
    logits, labels = torch.tensor([[1.5, 0.0, 1.5]]), torch.tensor([[1.0, 1.0, 0.0]])
    close(loss(logits, labels), (0.201413 + math.log(2) + 1.701413) / 3)
    close(loss.decode(logits), [[0.817574, 0.5, 0.817574]])
    close(loss.log_probabilities(logits)[0, 0].exp(), [0.182426, 0.817574])


# --- weights -----------------------------------------------------------------------------


def test_balanced_weights_are_those_of_scikit_learn():
    labels = torch.tensor([0] * 6 + [1] * 3 + [2])
    loss = build("cross-entropy", CLASSES, weights="balanced")
    loss.begin(labels, torch.device("cpu"))
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels.numpy())
    assert loss.weights.tolist() == pytest.approx(expected.tolist())
    logits = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    summed = F.cross_entropy(logits, labels, weight=loss.weights, reduction="sum")
    torch.testing.assert_close(loss(logits, labels), summed / 10)
    # Over all training rows the weights sum to as many, so torch's own mean is the same there.
    whole = F.cross_entropy(logits, labels, weight=loss.weights)
    torch.testing.assert_close(loss(logits, labels), whole)


def test_weights_by_the_root():
    # 6, 3 and 1 rows: 1/sqrt each, scaled so that the mean over the ten rows is 1.
    loss = build("cross-entropy", CLASSES, weights="sqrt")
    loss.begin(torch.tensor([0] * 6 + [1] * 3 + [2]), torch.device("cpu"))
    scale = 10 / (math.sqrt(6) + math.sqrt(3) + 1)
    expected = [scale / math.sqrt(count) for count in (6, 3, 1)]
    assert loss.weights.tolist() == pytest.approx(expected)


def test_given_weights_by_place_and_by_word():
    logits, labels = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 0.0]]), torch.tensor([0, 2])
    plain = F.cross_entropy(logits, labels, reduction="none")
    close(
        build("cross-entropy", CLASSES, weights=[2, 1, 5])(logits, labels),
        float(2 * plain[0] + 5 * plain[1]) / 2,
    )
    close(
        build("cross-entropy", CLASSES, weights={"c": 5})(logits, labels),
        float(plain[0] + 5 * plain[1]) / 2,
    )


def test_weighted_bce():
    loss = build("bce", BINARY, weights="balanced")
    labels = torch.tensor([1.0, 0.0, 0.0, 0.0])
    loss.begin(labels, torch.device("cpu"))
    expected = compute_class_weight("balanced", classes=np.arange(2), y=labels.numpy())
    assert loss.weights.tolist() == pytest.approx(expected.tolist())
    logits = column(0.3, -1.0, 0.5, 2.0)
    # A weight for the positives alone, as torch has it, times that of the others.
    ratio = torch.tensor(expected[1] / expected[0])
    torch_s = F.binary_cross_entropy_with_logits(logits[:, 0], labels, pos_weight=ratio)
    close(loss(logits, labels), float(torch_s * expected[0]))


def test_weights_of_labels():
    labels = torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    loss = build("label-bce", LABELS, weights="balanced")
    loss.begin(labels, torch.device("cpu"))
    for own, column_ in zip(loss.weights[:2], labels.T, strict=False):
        expected = compute_class_weight("balanced", classes=np.arange(2), y=column_.numpy())
        assert own.tolist() == pytest.approx(expected.tolist())
    assert loss.weights[2].tolist() == [1.0, 1.0]  # nobody has the third: nothing to balance
    logits = torch.randn(4, 3, generator=torch.Generator().manual_seed(2))
    given = build("label-bce", LABELS, weights={"b": 3.0, "c": 0.5})
    positive = torch.tensor([1.0, 3.0, 0.5])
    expected = F.binary_cross_entropy_with_logits(logits, labels, pos_weight=positive)
    torch.testing.assert_close(given(logits, labels), expected)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2], "weights has 2 numbers for 3 labels"),
        ([1, 2, -1], "weights must be 0 or more"),
        ([0, 0, 0], "not all 0"),
        ({"d": 2.0}, "weights names 'd'"),
        ("heavy", "'balanced' or 'sqrt'"),
    ],
)
def test_weights_that_make_no_sense(weights, message):
    with pytest.raises(RecipeError, match=message):
        build("cross-entropy", CLASSES, weights=weights)


# --- scores ------------------------------------------------------------------------------


def test_mse_of_a_score_mapped_to_0_to_1_is_25_times_smaller():
    unit, raw = build("mse", SCORE), build("mse", SCORE, scale="raw")
    labels = torch.tensor([4.0, 1.0])
    # (0.6 - 0.8)^2 and (0.5 - 0.2)^2, half their sum; the same answers in raw are 3 and 2.5.
    close(unit(column(0.6, 0.5), labels), 0.065)
    close(raw(column(3.0, 2.5), labels), 25 * 0.065)
    close(unit.decode(column(-0.2, 0.0, 0.6, 1.0, 1.3)), [0.0, 0.0, 3.0, 5.0, 5.0])
    close(raw.decode(column(-1.0, 0.0, 3.0, 5.0, 6.5)), [0.0, 0.0, 3.0, 5.0, 5.0])


@pytest.mark.parametrize(
    ("map_", "before_clamping", "decoded"),
    [
        ("clipped", (0.0, 0.0, 0.0, 2.5, 5.0), [0.0, 0.0, 0.0, 2.5, 5.0]),
        ("plain", (-5.0, -2.5, 0.0, 2.5, 5.0), [0.0, 0.0, 0.0, 2.5, 5.0]),
        ("shifted", (0.0, 1.25, 2.5, 3.75, 5.0), [0.0, 1.25, 2.5, 3.75, 5.0]),
    ],
)
def test_the_three_ways_to_read_a_score_off_a_cosine(map_, before_clamping, decoded):
    raw, unit = (build("cosine-mse", SCORE, map=map_, scale=scale) for scale in ("raw", "unit"))
    for label in (0.0, 1.0, 5.0):
        for cosine, score in zip(COSINES, before_clamping, strict=True):
            error = (score - label) ** 2
            close(raw(column(cosine), torch.tensor([label])), error)
            close(unit(column(cosine), torch.tensor([label])), error / 25)
    close(raw.decode(column(*COSINES)), decoded)
    close(unit.decode(column(*COSINES)), decoded)


def test_only_a_clipped_cosine_loses_the_gradient_of_opposite_vectors():
    slopes = {}
    for map_ in ("clipped", "plain", "shifted"):
        cosine = column(-0.5).requires_grad_()
        build("cosine-mse", SCORE, map=map_)(cosine, torch.tensor([5.0])).backward()
        slopes[map_] = cosine.grad.item()
    # 2 (unit - 1) d unit / d cos, at unit = 0, -0.5 and 0.25
    assert slopes == pytest.approx({"clipped": 0.0, "plain": -3.0, "shifted": -0.75})


def test_score_cross_entropy():
    loss = build("score-cross-entropy", SCORE)
    # sigmoid(2) = 0.880797; a label of 4 is 0.8.
    close(loss(column(2.0), torch.tensor([4.0])), 0.8 * 0.126928 + 0.2 * 2.126928)
    for label in (0.0, 2.0, 5.0):
        close(loss(column(0.0), torch.tensor([label])), math.log(2))
    close(loss.decode(column(-50.0, 0.0, 2.0, 50.0)), [0.0, 2.5, 5 * 0.880797, 5.0])


def test_score_cross_entropy_is_lowest_at_the_label_and_there_equals_its_entropy():
    loss = build("score-cross-entropy", SCORE)
    logit = math.log(0.8 / 0.2)
    entropy = -(0.8 * math.log(0.8) + 0.2 * math.log(0.2))
    label = torch.tensor([4.0])
    close(loss(column(logit), label), entropy)
    assert loss(column(logit - 0.1), label) > entropy < loss(column(logit + 0.1), label)
