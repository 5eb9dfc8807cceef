"""The Bregman term against the closed form of its running mean, and a step that uses it."""

from __future__ import annotations

import pytest
import torch

from plait.config import StageConfig
from plait.errors import RecipeError
from plait.methods.aggregators import AGGREGATORS
from plait.methods.regularizers import REGULARIZERS
from plait.methods.regularizers.bregman import Bregman
from plait.training.optimizer import build_optimizer, freeze, set_rate
from plait.training.step import Step, TaskParts

each_task = pytest.mark.parametrize("task", ["mood", "same", "near"])


def shake(model, seed: int, size: float = 0.1) -> None:
    """Stand in for an update."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                parameter += size * noise


def test_the_last_iterate_is_no_distance_away_but_for_dropout(tiny_model, losses, batches):
    settings = {"beta": 0.0, "beta_early": 0.0, "under_dropout": True}
    for dropout in (0.0, 0.3):
        model, batch = tiny_model(dropout=dropout).train(), batches["mood"]
        bregman = Bregman(**settings)
        bregman.begin(model, 10)
        shake(model, 0)
        bregman.after_update(model, 1)
        torch.manual_seed(4)
        outputs = model("mood", batch.tokens)
        torch.manual_seed(5)
        term = bregman(model, "mood", batch, outputs, losses["mood"])
        torch.manual_seed(5)
        p, q = outputs.softmax(1), model("mood", batch.tokens).detach().softmax(1)
        literal = ((p - q) * (p.log() - q.log())).sum(1).mean()
        torch.testing.assert_close(term, literal, rtol=1e-4, atol=1e-7)
        assert (term > 0) == (dropout > 0)
        parameters = list(model.encoder.layers.parameters())
        for mine, theirs in zip(
            torch.autograd.grad(term, parameters, retain_graph=True),
            torch.autograd.grad(literal, parameters),
            strict=True,
        ):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "keeps"),
    [
        ({"beta": 0.0, "beta_early": 0.0}, False),
        ({"beta": 0.0, "early": 0.0}, False),
        ({"beta": 0.0}, True),
        ({"beta_early": 0.0}, True),
    ],
)
def test_the_last_iterate_needs_no_copy(tiny_model, settings, keeps):
    bregman = Bregman(**settings)
    bregman.begin(tiny_model(), 10)
    assert bool(bregman.tensors()) == keeps


def test_the_running_mean_equals_its_closed_form(tiny_model):
    model = tiny_model().double()
    bregman = Bregman()
    bregman.begin(model, 40)  # beta 0.99 for 4 updates
    history = [{n: p.detach().clone() for n, p in model.named_parameters()}]
    for step in range(1, 8):
        shake(model, step)
        bregman.after_update(model, step)
        history.append({n: p.detach().clone() for n, p in model.named_parameters()})
    betas = [0.99] * 4 + [0.999] * 3
    for name, mean in bregman.tensors().items():
        expected = torch.zeros_like(mean)
        for i, theta in enumerate(history):
            share = 1.0 if i == 0 else 1 - betas[i - 1]
            for beta in betas[i:]:
                share *= beta
            expected += share * theta[name]
        torch.testing.assert_close(mean, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("num_steps", "early"), [(10, 1), (100, 10), (1234, 123), (3, 0)])
def test_beta_grows_after_a_tenth_of_the_updates(tiny_model, num_steps, early):
    model = tiny_model()
    bregman = Bregman(beta=1.0, beta_early=0.0)  # all of the present, then none of it
    bregman.begin(model, num_steps)
    name = "encoder.layers.0.up.weight"
    for step in (early, early + 1):
        if step == 0:
            continue
        shake(model, step)
        bregman.after_update(model, step)
        follows = torch.equal(bregman.tensors()[name], model.get_parameter(name))
        assert follows == (step <= early)


@each_task
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_term_and_its_gradient_compare_two_models(tiny_model, losses, batches, task, dropout):
    model, old, batch = tiny_model(dropout=dropout).double(), tiny_model().double(), batches[task]
    bregman = Bregman(weight=2.0)
    bregman.begin(model, 10)
    shake(model, 0)
    term = bregman(model.train(), task, batch, model(task, batch.tokens), losses[task])
    now, before = model.eval()(task, batch.tokens), old(task, batch.tokens).detach()
    if task == "near":
        literal = (now.sigmoid() - before.sigmoid()).square().mean()
    else:
        pair = (now, before)
        if task == "same":  # a logit against 0
            pair = tuple(torch.cat([0 * logit, logit], dim=1) for logit in pair)
        p, q = (logits.softmax(dim=1) for logits in pair)
        literal = ((p - q) * (p / q).log()).sum(dim=1).mean()
    torch.testing.assert_close(term, 2 * literal, rtol=1e-9, atol=0)
    parameters = [*model.encoder.layers.parameters(), *model.head_parameters(task).values()]
    for mine, theirs in zip(
        torch.autograd.grad(term, parameters),
        torch.autograd.grad(2 * literal, parameters),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-12)


# --- in a step ----------------------------------------------------------------------------


@pytest.fixture
def make_step(losses):
    """Factory of a step with one regularizer for all tasks."""

    def make(model, regularizer, num_steps: int = 20) -> Step:
        stage = StageConfig(lr=1e-2)
        freeze(model, stage)
        regularizer.begin(model, num_steps)
        optimizer = build_optimizer(model, stage)
        set_rate(optimizer, 1.0)
        parts = {t: TaskParts(loss, 1.0, (regularizer,)) for t, loss in losses.items()}
        return Step(model.train(), parts, AGGREGATORS.build("sum", "x"), optimizer)

    return make


def test_a_step_lets_it_follow_once_per_update(tiny_model, make_step, batches):
    model, calls = tiny_model(dropout=0.1), []
    bregman = Bregman()
    step = make_step(model, bregman)
    follow = bregman.after_update
    bregman.after_update = lambda model, number: (calls.append(number), follow(model, number))
    first = step([batches])
    assert all(term == 0 for term in first.terms.values())
    second = step([batches, batches])
    assert all(term > 0 for term in second.terms.values())
    assert calls == [1, 2]
    assert step.regularizers == [bregman]


@pytest.mark.parametrize("settings", [{"beta": 1.1}, {"beta_early": -0.1}, {"early": 2.0}])
def test_settings_that_make_no_sense(settings):
    with pytest.raises(RecipeError, match=r"^x: .* must be from 0 to 1"):
        REGULARIZERS.build({"name": "bregman", **settings}, "x")
