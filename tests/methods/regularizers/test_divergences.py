"""Distances of two outputs against sums written out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from plait.methods.losses import LOSSES, Loss
from plait.methods.regularizers.divergences import (
    inner_distance,
    last_distance,
    plain_kl,
    squared,
    symmetric_kl,
)
from plait.tasks import TaskSpec

CLASSES = TaskSpec(kind="classes", labels=("a", "b", "c"), text=("text",))
BINARY = TaskSpec(kind="binary", text=("a", "b"))
SCORE = TaskSpec(kind="score", range=(0.0, 5.0), text=("a", "b"))
CASES = [
    ("cross-entropy", CLASSES),
    ("bce", BINARY),
    ("cross-entropy", BINARY),
    ("score-cross-entropy", SCORE),
    ("mse", SCORE),
    ("cosine-mse", SCORE),
]


def build(name: str, spec: TaskSpec, **settings: object) -> Loss:
    return LOSSES.build({"name": name, **settings}, "loss", spec)


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


def outputs(loss: Loss, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.rand(5, loss.num_outputs, generator=generator, dtype=torch.float64)
    return 0.1 + 0.8 * drawn


@pytest.mark.parametrize(("name", "spec"), CASES)
def test_kl_of_two_outputs(name, spec):
    loss = build(name, spec)
    one, two = outputs(loss, 0), outputs(loss, 1)
    if spec.kind.name == "score":
        yes = [x.sigmoid() if name == "score-cross-entropy" else x for x in (one, two)]
        p, q = (torch.cat([1 - y, y], dim=1).tolist() for y in yes)
    else:
        p, q = (loss.decode(x).tolist() for x in (one, two))
    forth = [kl(a, b) for a, b in zip(p, q, strict=True)]
    back = [kl(b, a) for a, b in zip(p, q, strict=True)]
    assert plain_kl(loss, one, two).tolist() == pytest.approx(forth)
    both = [a + b for a, b in zip(forth, back, strict=True)]
    assert symmetric_kl(loss, one, two).tolist() == pytest.approx(both)
    assert min(forth) > 0


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("mse", {}, 0.3**2),
        ("mse", {"scale": "raw"}, 0.3**2),
        ("cosine-mse", {}, 0.3**2),
        ("cosine-mse", {"map": "shifted"}, 0.15**2),
        ("cosine-mse", {"scale": "raw"}, 1.5**2),
        ("score-cross-entropy", {}, (1 / (1 + math.exp(-0.5)) - 1 / (1 + math.exp(-0.2))) ** 2),
    ],
)
def test_the_squared_difference_is_in_the_scale_of_the_loss(name, settings, expected):
    loss = build(name, SCORE, **settings)
    one, two = torch.tensor([[0.5]]), torch.tensor([[0.2]])
    assert squared(loss, one, two).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("name", "spec"), CASES)
def test_the_three_variants(name, spec):
    loss = build(name, spec)
    one, two = outputs(loss, 0), outputs(loss, 1)
    plain, symmetric = plain_kl(loss, one, two), symmetric_kl(loss, one, two)
    proper = squared(loss, one, two) if spec.kind.name == "score" else symmetric
    assert not torch.allclose(plain, symmetric)
    expected = {0: (proper, proper), 1: (plain, plain), 2: (plain, symmetric)}
    for variant, (inner, last) in expected.items():
        assert torch.equal(inner_distance(variant, loss, one, two), inner)
        assert torch.equal(last_distance(variant, loss, one, two), last)


@pytest.mark.parametrize(("name", "spec"), CASES)
def test_a_difference_of_1e_5_is_measured_to_the_last_places(name, spec):
    """In fp32 the terms of a plain KL cancel down to their rounding."""
    loss = build(name, spec)
    one = outputs(loss, 0).float()
    two = one + 1e-5 * torch.linspace(-1, 1.1, one.numel()).view_as(one)
    for distance in (plain_kl, symmetric_kl):
        exact = distance(loss, one.double(), two.double())
        torch.testing.assert_close(distance(loss, one, two), exact)
        # KL is half of d F d to the second order, symmetric KL the whole
        gap = loss.log_probabilities(two.double()) - loss.log_probabilities(one.double())
        p = loss.log_probabilities(one.double()).exp()
        variance = (p * gap.square()).sum(1) - (p * gap).sum(1).square()
        factor = 0.5 if distance is plain_kl else 1.0
        torch.testing.assert_close(exact, factor * variance, rtol=1e-3, atol=0)
    p, q = loss.log_probabilities(one), loss.log_probabilities(two)
    in_fp32 = (p.exp() * (p - q)).sum(dim=-1)
    assert (in_fp32 / plain_kl(loss, one, two) - 1).abs().max() > 1


def test_labels_are_a_yes_or_no_each():
    labels = build("label-bce", TaskSpec(kind="labels", labels=3, text=("text",)))
    single = build("bce", BINARY)
    one, two = outputs(labels, 0), outputs(labels, 1)
    for distance in (plain_kl, symmetric_kl):
        each = [distance(single, one[:, i : i + 1], two[:, i : i + 1]) for i in range(3)]
        torch.testing.assert_close(distance(labels, one, two), torch.stack(each).mean(dim=0))
    assert torch.equal(last_distance(0, labels, one, two), symmetric_kl(labels, one, two))
