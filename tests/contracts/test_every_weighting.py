"""What every loss weighting must do, over all registered ones."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load, save

from plait.methods.weighting import WEIGHTINGS, Weighting

CPU = torch.device("cpu")
TASKS = ("a", "b", "c")


@pytest.fixture
def make(weighting_table):
    """Factory of one weighting after the other."""
    return lambda: WEIGHTINGS.build(weighting_table, "train.weighting", TASKS, CPU)


def update(weighting: Weighting, seed: int, tasks=TASKS) -> list[float]:
    """One update with losses from a seed; return the factors on them."""
    generator = torch.Generator().manual_seed(seed)
    before, after = (
        {task: torch.rand((), generator=generator) + 0.01 for task in tasks} for _ in range(2)
    )
    factors = []
    for task, loss in before.items():
        leaf = loss.clone().requires_grad_()
        term = weighting(task, leaf)
        assert term.shape == ()
        term.backward()
        factors.append(leaf.grad)
    scale = weighting.scale(1)
    if weighting.looks_again:
        weighting.after_update(before, after)
    with torch.no_grad():  # what an optimizer might do
        for parameter in (p for task in tasks for p in weighting.parameters(task)):
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
    return [float(f if scale is None else f * scale) for f in factors]


@pytest.mark.parametrize("tasks", [("a",), ("c", "a"), TASKS])
def test_every_loss_gets_a_factor_above_0(make, tasks):
    weighting = make()
    for seed in range(4):
        for factor in update(weighting, seed, tasks):
            assert 0 < factor < float("inf")
        weighting.end_epoch()


@pytest.mark.parametrize("value", [0.0, 1e-12, 1e4])
def test_extreme_losses_do_no_harm(make, value):
    weighting = make()
    for _ in range(3):
        losses = {"a": torch.tensor(value, requires_grad=True), "b": torch.tensor(1.0)}
        for task, loss in losses.items():
            assert weighting(task, loss).isfinite()
        scale = weighting.scale(1)
        assert scale is None or scale.isfinite()
        if weighting.looks_again:
            told = {task: loss.detach() for task, loss in losses.items()}
            weighting.after_update(told, told)
        weighting.end_epoch()
    assert all(0 < factor < float("inf") for factor in update(weighting, 0))


def test_a_past_that_was_saved_has_the_same_future(make):
    unbroken = make()
    for seed in range(6):
        update(unbroken, seed, TASKS[seed % 2 :])
        if seed % 2:
            unbroken.end_epoch()
    again = make()
    # By way of the bytes of a checkpoint: no two tensors may share memory.
    again.load_tensors(load(save({n: t.detach() for n, t in unbroken.tensors().items()})))
    for seed in range(6, 12):
        assert update(unbroken, seed) == update(again, seed)
        unbroken.end_epoch()
        again.end_epoch()
