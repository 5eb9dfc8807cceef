"""Losses against answers worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from plait.errors import RecipeError
from plait.losses import LOSSES, Loss
from plait.types import TaskSpec

CLASSES = TaskSpec(kind="classes", labels=("a", "b", "c"), text=("text",))
BINARY = TaskSpec(kind="binary", text=("a", "b"))
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


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, 1.5])
def test_label_smoothing_is_a_share(smoothing):
    with pytest.raises(RecipeError, match=r"^loss: smoothing is a share from 0 to 1"):
        build("cross-entropy", CLASSES, smoothing=smoothing)


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


def test_mse_of_a_score_mapped_to_0_to_1_is_25_times_smaller():
    unit, raw = build("mse", SCORE), build("mse", SCORE, scale="raw")
    labels = torch.tensor([4.0, 1.0])
    # (0.6 - 0.8)^2 and (0.5 - 0.2)^2, half their sum; the same answers in raw are 3 and 2.5.
    close(unit(column(0.6, 0.5), labels), 0.065)
    close(raw(column(3.0, 2.5), labels), 25 * 0.065)
    close(unit.decode(column(-0.2, 0.0, 0.6, 1.0, 1.3)), [0.0, 0.0, 3.0, 5.0, 5.0])
    close(raw.decode(column(-1.0, 0.0, 3.0, 5.0, 6.5)), [0.0, 0.0, 3.0, 5.0, 5.0])


def test_mse_on_a_range_that_does_not_start_at_0():
    loss = build("mse", TaskSpec(kind="score", range=(1.0, 5.0), text=("a", "b")))
    close(loss(column(0.25), torch.tensor([4.0])), 0.25)
    close(loss.decode(column(0.25)), [2.0])


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


def test_a_cosine_read_on_a_range_that_does_not_start_at_0():
    spec = TaskSpec(kind="score", range=(1.0, 5.0), text=("a", "b"), inputs="apart")
    expected = {"clipped": [1.0, 1.0, 3.0], "plain": [1.0, 1.0, 3.0], "shifted": [2.0, 3.0, 4.0]}
    for map_, scores in expected.items():
        close(build("cosine-mse", spec, map=map_).decode(column(-0.5, 0.0, 0.5)), scores)


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
