"""Meta-updates worked out by hand, and what they are equal to in plain cases."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch import nn

from plait.config import StageConfig
from plait.methods.aggregators import AGGREGATORS
from plait.methods.losses import LOSSES
from plait.training.optimizer import build_optimizer, freeze, set_rate
from plait.training.stages.meta import FOMAML, FOMAMLStep, Reptile, ReptileStep
from plait.training.step import Step, TaskParts
from plait.types import Batch, Tokens

# --- two parameters: a shared w and a head's h, outputs w h x ----------------------------


class Line(nn.Module):
    """Answers w h x: one shared number, one number per task."""

    def __init__(self, w: float, **heads: float):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([w]))
        self.h = nn.ParameterDict({t: nn.Parameter(torch.tensor([h])) for t, h in heads.items()})

    def forward(self, task, tokens):
        return self.w * self.h[task] * tokens.ids

    def touches_encoder(self, task):
        return True

    def shared_parameters(self):
        return {"w": self.w}

    def head_parameters(self, task):
        return {"h": self.h[task]}


def half_square(outputs, labels):
    return (outputs - labels).square().mean() / 2


def point(x: float, y: float) -> Batch:
    ids = torch.tensor([x])
    return Batch(Tokens(ids, ids, ids), torch.tensor([y]))


def make(model, kind, *tasks, weight=1.0, regularizers=(), **settings):
    """Make the kind's step over a Line; FOMAML's outer optimizer is SGD at 0.1 here.

    `weight` is the first task's.
    """
    weights = dict.fromkeys(tasks, 1.0) | {tasks[0]: weight}
    parts = {task: TaskParts(half_square, weights[task], regularizers) for task in tasks}
    total = AGGREGATORS.build("sum", "aggregator")
    if isinstance(kind, Reptile):
        outer = kind.build_optimizer(model, STAGE, None)
        return ReptileStep(model, parts, total, outer, kind=kind, **settings)
    outer = torch.optim.SGD(model.parameters(), lr=0.1)
    return FOMAMLStep(model, parts, total, outer, kind=kind, **settings)


def values(model, task="a"):
    return model.w.item(), model.h[task].item()


def test_reptile_by_hand():
    """w = 1, h = 2; d/dw = (w h x - y) h x, d/dh = (w h x - y) w x; rate 0.1.

    x 1, y 0: both from 2: w = 1 - 0.1 * 2 * 2 = 0.6, h = 2 - 0.1 * 2 * 1 = 1.8.
    x 1, y 1: w h - y = 0.08: w = 0.6 - 0.1 * 0.08 * 1.8 = 0.5856, h = 1.8 - 0.1 * 0.08 * 0.6.
    w goes half way from 1 to 0.5856; h stays where it came to.
    """
    model = Line(1.0, a=2.0)
    step = make(model, Reptile(inner_steps=2, inner_lr=0.1, outer_lr=0.5), "a")
    result = step([{"a": point(1, 0)}, {"a": point(1, 1)}])
    assert values(model) == pytest.approx((0.7928, 1.7952))
    assert result.losses["a"].item() == pytest.approx((2.0 + 0.0032) / 2)
    assert result.grad_norm.item() == pytest.approx(0.4144)


def test_reptile_moves_by_the_mean_over_tasks():
    """a as above after one update: 0.6. b: h = 1, x 1, y 3: w = 1 + 0.1 * 2 = 1.2, h too.

    Both begin at w = 1, so w becomes 1 + 0.5 * (-0.4 + 0.2) / 2 = 0.95.
    """
    model = Line(1.0, a=2.0, b=1.0)
    step = make(model, Reptile(inner_steps=1, inner_lr=0.1, outer_lr=0.5), "a", "b")
    step([{"a": point(1, 0), "b": point(1, 3)}])
    assert values(model, "a") == pytest.approx((0.95, 1.8))
    assert values(model, "b") == pytest.approx((0.95, 1.2))
    model = Line(1.0, a=2.0, b=1.0)  # the same in two turns of one update
    step = make(model, Reptile(inner_steps=1, inner_lr=0.1, outer_lr=0.5), "a", "b")
    step([{"a": point(1, 0)}, {"b": point(1, 3)}])
    assert values(model, "a") == pytest.approx((0.95, 1.8))


class Headed(Line):
    """A Line whose task b leaves w alone."""

    def touches_encoder(self, task):
        return task != "b"


def test_a_task_that_leaves_the_encoder_has_no_part_in_the_mean():
    """a's difference alone: 1 + 0.5 * -0.4. b's head adapts: h = 1 + 0.1 * 2."""
    model = Headed(1.0, a=2.0, b=1.0)
    step = make(model, Reptile(inner_steps=1, inner_lr=0.1, outer_lr=0.5), "a", "b")
    step([{"a": point(1, 0), "b": point(1, 3)}])
    assert values(model, "a") == pytest.approx((0.8, 1.8))
    assert values(model, "b") == pytest.approx((0.8, 1.2))


def test_fomaml_by_hand():
    """To w = 0.6, h = 1.8 as above; the query x 1, y 0 there has w h = 1.08.

    Its gradients, 1.08 * 1.8 = 1.944 and 1.08 * 0.6 = 0.648, move the start at rate 0.1.
    """
    model = Line(1.0, a=2.0)
    step = make(model, FOMAML(inner_steps=1, inner_lr=0.1), "a")
    result = step([{"a": point(1, 0)}, {"a": point(1, 0)}])
    assert values(model) == pytest.approx((1 - 0.1944, 2 - 0.0648))
    assert result.losses["a"].item() == pytest.approx(1.08**2 / 2)


def test_adam_inside_an_episode():
    """Without momentum, the first step is the gradient's sign; so is the second if it stays.

    Gradients of w: 4 and (0.9 * 1.9)  * 1.9 = 3.249, of which the second makes
    3.249 / sqrt((0.999 * 16 + 3.249^2) / 1.999).
    """
    model = Line(1.0, a=2.0)
    kind = Reptile(inner_steps=1, inner_lr=0.1, outer_lr=1.0, inner_optimizer="adam")
    make(model, kind, "a")([{"a": point(1, 0)}])
    assert values(model) == pytest.approx((0.9, 1.9))
    model = Line(1.0, a=2.0)
    kind = Reptile(inner_steps=2, inner_lr=0.1, outer_lr=1.0, inner_optimizer="adam")
    make(model, kind, "a")([{"a": point(1, 0)}] * 2)
    second = 3.249 / ((0.999 * 16 + 3.249**2) / 1.999) ** 0.5
    assert values(model)[0] == pytest.approx(0.9 - 0.1 * second)


# --- the tiny model ----------------------------------------------------------------------

STAGE = StageConfig(lr=1e-2, weight_decay=0.1, eps=1e-4)


@pytest.fixture
def batches(tiny_specs, tiny_batch):
    """Three batches of 4 per task."""
    return [
        {t: tiny_batch(s, 4, seed=10 * n + i) for i, (t, s) in enumerate(tiny_specs.items())}
        for n in range(3)
    ]


@pytest.fixture
def parts(tiny_specs):
    losses = {t: LOSSES.build(s.kind.default_loss, "loss", s) for t, s in tiny_specs.items()}
    return {task: TaskParts(loss) for task, loss in losses.items()}


def build(model, parts, kind, aggregator="sum", **settings):
    freeze(model, STAGE)
    reptile = isinstance(kind, Reptile)
    outer = kind.build_optimizer(model, STAGE, None) if reptile else build_optimizer(model, STAGE)
    set_rate(outer, 1.0)
    total = AGGREGATORS.build(aggregator, "aggregator")
    if kind is None:
        return Step(model.train(), parts, total, outer, **settings)
    make_step = ReptileStep if reptile else FOMAMLStep
    return make_step(model.train(), parts, total, outer, kind=kind, **settings)


def assert_same(one, other, atol=1e-6):
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("aggregator", ["sum", "pcgrad"])
@pytest.mark.parametrize("steps", [0, 2])
def test_fomaml_that_does_not_adapt_is_a_plain_update(
    tiny_model, parts, batches, aggregator, steps
):
    model, plain = tiny_model(), tiny_model()
    kind = FOMAML(inner_steps=steps)
    kind.inner_lr = 0.0
    meta = build(model, parts, kind, aggregator, clip=1.0)
    step = build(plain, parts, None, aggregator, clip=1.0)
    for _ in range(2):
        torch.manual_seed(0)
        told = meta([*batches[:steps], batches[2]])
        torch.manual_seed(0)
        expected = step([batches[2]])
        torch.testing.assert_close(told.losses, expected.losses)
        torch.testing.assert_close(told.grad_norm, expected.grad_norm)
    assert_same(model, plain)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_fomaml_against_a_copy_of_the_model(tiny_model, parts, batches, optimizer):
    """The query gradient of an adapted copy, applied by AdamW to the model that was copied."""
    model, plain = tiny_model(), tiny_model()
    freeze(plain, STAGE)
    kind = FOMAML(inner_steps=2, inner_lr=0.05, inner_optimizer=optimizer)
    build(model, parts, kind)(batches)
    outer = build_optimizer(plain, STAGE)
    set_rate(outer, 1.0)
    for task in parts:
        copy = deepcopy(plain)
        copy.zero_grad()
        adapted = [*copy.shared_parameters().values(), *copy.head_parameters(task).values()]
        adapted = [p for p in adapted if p.requires_grad]
        inner = (
            torch.optim.SGD(adapted, lr=0.05)
            if optimizer == "sgd"
            else torch.optim.Adam(adapted, lr=0.05, betas=(0.0, 0.999), eps=1e-8)
        )
        for batch in (turn[task] for turn in batches[:2]):
            inner.zero_grad()
            parts[task].loss(copy(task, batch.tokens), batch.labels).backward()
            inner.step()
        copy.zero_grad()
        query = batches[2][task]
        parts[task].loss(copy(task, query.tokens), query.labels).backward()
        for p, q in zip(plain.parameters(), copy.parameters(), strict=True):
            if q.grad is not None:
                p.grad = q.grad.clone() if p.grad is None else p.grad + q.grad
    outer.step()
    assert_same(model, plain, atol=1e-5)


def test_other_heads_stay_and_so_does_what_may_not_be_touched(tiny_model, parts, batches):
    model = tiny_model(readers=("mood",))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    step = build(model, parts, Reptile(inner_steps=1, inner_lr=0.1))
    step([{"mood": batches[0]["mood"]}])
    moved = {n for n, tensor in model.state_dict().items() if not torch.equal(tensor, before[n])}
    assert moved
    assert all(name.startswith("heads.task-mood.") for name in moved)
