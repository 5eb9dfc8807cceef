"""Distillation's loss against values worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from plait.methods.losses import LOSSES
from plait.methods.regularizers.divergences import symmetric_kl
from plait.tasks import TaskSpec
from plait.training.stages.distill import Distilled

CLASSES = TaskSpec(kind="classes", labels=("a", "b"), text=("text",))
BINARY = TaskSpec(kind="binary", text=("a", "b"))
SCORE = TaskSpec(kind="score", range=(0.0, 5.0), text=("a", "b"))


def make(spec, *, loss=None, temperature=2.0, weight=0.5):
    own = LOSSES.build(loss or spec.kind.default_loss, "loss", spec)
    return Distilled(own, temperature, weight)


def test_classes_by_hand():
    # Student logits 0, 0: the own loss is ln 2, and softened it is still 1/2, 1/2. The teacher's
    # .9 and .1 are 9 to 1; at T = 2 their roots are 3 to 1, that is .75 and .25.
    divergence = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    loss = make(CLASSES, weight=0.3)(torch.zeros(1, 2), torch.tensor([[0.0, 0.9, 0.1]]))
    assert float(loss) == pytest.approx(0.7 * math.log(2) + 0.3 * 4 * divergence)
    assert divergence == pytest.approx(0.130812, abs=1e-6)


def test_yes_or_no_by_hand():
    # One logit, ln 16: a yes of 16/17, at T = 2 of 4/5. The teacher says 1/2 at any T.
    outputs, labels = torch.tensor([[math.log(16)]]), torch.tensor([[1.0, 0.5, 0.5]])
    divergence = 0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.5 / 0.2)
    loss = make(BINARY)(outputs, labels)
    assert float(loss) == pytest.approx(0.5 * math.log(17 / 16) + 0.5 * 4 * divergence)


def test_labels_by_hand():
    # The second label as in the test above; of the first, student and teacher say 1/2.
    outputs = torch.tensor([[0.0, math.log(16)]])
    labels = torch.tensor([[1.0, 1.0, 0.5, 0.5]])
    divergence = 0.5 * math.log(0.5 / 0.8) + 0.5 * math.log(0.5 / 0.2)
    spec = TaskSpec(kind="labels", labels=2, text=("text",))
    loss = make(spec)(outputs, labels)
    hard = math.log(2) + math.log(17 / 16)
    assert float(loss) == pytest.approx((0.5 * hard + 0.5 * 4 * divergence) / 2)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_each_label_learns_from_the_teachers_yes_and_no(temperature):
    generator = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 5, 3, generator=generator) * 2
    known = torch.randint(2, (5, 3), generator=generator).float()
    spec = TaskSpec(kind="labels", labels=3, text=("text",))
    loss = make(spec, temperature=temperature, weight=0.3)
    found = loss(student, torch.cat([known, teacher.sigmoid()], dim=1))
    p, q = ((logits / temperature).sigmoid() for logits in (teacher, student))
    divergence = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    hard = F.binary_cross_entropy_with_logits(student, known)
    torch.testing.assert_close(found, 0.7 * hard + 0.3 * temperature**2 * divergence.mean())


@pytest.mark.parametrize("loss", ["score-cross-entropy", "mse", "cosine-mse"])
def test_a_score_is_taken_for_the_label(loss):
    # (1 - w) of the loss against the label, w of it against the teacher's score.
    outputs = torch.tensor([[0.6], [0.1]])
    distilled = make(SCORE, loss=loss, weight=0.25, temperature=9.0)
    own = distilled.own
    given, taught = torch.tensor([5.0, 1.0]), torch.tensor([4.0, 2.0])
    found = distilled(outputs, torch.stack([given, taught], dim=1))
    torch.testing.assert_close(found, 0.75 * own(outputs, given) + 0.25 * own(outputs, taught))


def test_what_is_softened_may_be_logits_or_probabilities():
    generator = torch.Generator().manual_seed(0)
    spec = TaskSpec(kind="classes", labels=5, text=("text",))
    student, teacher = torch.randn(2, 7, 5, generator=generator, dtype=torch.float64) * 3
    labels = torch.cat([torch.zeros(7, 1), teacher.softmax(1)], dim=1)
    for temperature in (0.5, 1.0, 4.0):
        found = make(spec, temperature=temperature, weight=1.0)(student, labels)
        p, q = (logits / temperature for logits in (teacher, student))
        kl = F.kl_div(q.log_softmax(1), p.log_softmax(1), log_target=True, reduction="batchmean")
        torch.testing.assert_close(found, temperature**2 * kl)


def test_the_gradient_keeps_its_size():
    """At high T it is that of matching logits, 1 / classes of the difference (section 2.1)."""
    student = torch.tensor([[0.3, -0.1, 0.5]], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([[0.2, 0.4, -0.6]], dtype=torch.float64)
    spec = TaskSpec(kind="classes", labels=3, text=("text",))
    labels = torch.cat([torch.zeros(1, 1), teacher.softmax(1)], dim=1)
    make(spec, temperature=1000.0, weight=1.0)(student, labels).backward()
    centred = (student.detach() - student.detach().mean()) - (teacher - teacher.mean())
    torch.testing.assert_close(student.grad, centred / 3, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("spec", [CLASSES, BINARY, SCORE], ids=lambda spec: spec.kind)
def test_outputs_mean_what_they_do_under_the_own_loss(spec):
    loss = make(spec)
    outputs = torch.randn(4, loss.num_outputs, generator=torch.Generator().manual_seed(1))
    assert loss.num_outputs == loss.own.num_outputs
    torch.testing.assert_close(loss.decode(outputs), loss.own.decode(outputs))
    torch.testing.assert_close(
        symmetric_kl(loss, outputs, outputs + 1), symmetric_kl(loss.own, outputs, outputs + 1)
    )
    if spec.kind.name == "score":
        torch.testing.assert_close(loss.value(outputs), loss.own.value(outputs))
