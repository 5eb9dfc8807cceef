"""Loss weightings against answers by hand and against the papers' formulas."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from plait.errors import RecipeError
from plait.methods.weighting import DWA, FAMO, WEIGHTINGS, Fixed, Uncertainty, Weighting

CPU = torch.device("cpu")


def factors(weighting: Weighting, losses: dict[str, float]) -> dict[str, float]:
    """The factor on each loss's gradient in an update of one turn."""
    found = {}
    for task, value in losses.items():
        loss = torch.tensor(value, requires_grad=True)
        weighting(task, loss).backward()
        found[task] = loss.grad.item()
    scale = weighting.scale(1)
    return {task: factor * (1 if scale is None else scale.item()) for task, factor in found.items()}


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"name": "uncertainty", "lr": 0.0}, "lr = 0.0"),
        ({"name": "dwa", "temperature": 0.0}, "temperature = 0.0"),
        ({"name": "famo", "lr": -1.0}, "lr = -1.0"),
        ({"name": "famo", "gamma": -0.1}, "gamma = -0.1"),
    ],
)
def test_settings_out_of_range_are_refused(table, words):
    with pytest.raises(RecipeError, match=f"train.weighting: {words}"):
        WEIGHTINGS.build(table, "train.weighting", ("a", "b"), CPU)


def test_fixed():
    assert factors(Fixed(("a", "b"), CPU), {"a": 3.0, "b": 0.1}) == {"a": 1.0, "b": 1.0}


# --- uncertainty -------------------------------------------------------------------------


def test_uncertainty_by_hand():
    weighting = Uncertainty(("a", "b"), CPU)
    (s,) = weighting.parameters("a")
    with torch.no_grad():
        s.fill_(math.log(4.0))
    value = weighting("a", torch.tensor(2.0))
    assert value.item() == pytest.approx(2 / 4 + math.log(4))
    value.backward()
    assert s.grad.item() == pytest.approx(1 - 2 / 4)
    assert factors(weighting, {"a": 2.0, "b": 7.0}) == pytest.approx({"a": 0.25, "b": 1.0})


@pytest.mark.parametrize("shape", ["classes", "squared error"])
def test_the_papers_two_forms_are_half_of_ours(shape):
    loss = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    s = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)  # log of the variance
    part = 1.0 if shape == "classes" else 0.5
    paper = torch.autograd.grad(part * loss * torch.exp(-s) + s / 2, (loss, s))
    shifted = (s - math.log(2)).detach() if shape == "classes" else s.detach()
    ours = Uncertainty(("a",), CPU)
    ours._s["a"].data = shifted
    mine = torch.autograd.grad(ours("a", loss), (loss, ours.parameters("a")[0]))
    torch.testing.assert_close([2 * g for g in paper], list(mine))


# --- DWA ---------------------------------------------------------------------------------


def epoch(weighting: Weighting, losses: dict[str, list[float]]) -> None:
    for task, values in losses.items():
        for value in values:
            weighting(task, torch.tensor(value))
    weighting.end_epoch()


def test_dwa_by_hand():
    weighting = DWA(("a", "b"), CPU)
    ones = {"a": 1.0, "b": 1.0}
    assert factors(weighting, ones) == ones
    weighting = DWA(("a", "b"), CPU)
    epoch(weighting, {"a": [3.0, 1.0], "b": [1.0]})  # means 2 and 1
    assert weighting._factor.tolist() == [1.0, 1.0]
    epoch(weighting, {"a": [1.0], "b": [0.5, 1.0, 1.5]})  # means 1 and 1: ratios 0.5 and 1
    a, b = math.exp(0.5 / 2), math.exp(1 / 2)
    expected = {"a": 2 * a / (a + b), "b": 2 * b / (a + b)}
    assert factors(weighting, ones) == pytest.approx(expected)


def test_the_slower_task_is_turned_up_and_all_factors_add_up_to_their_number():
    weighting = DWA(("a", "b", "c"), CPU, temperature=0.5)
    epoch(weighting, {"a": [2.0], "b": [2.0], "c": [2.0]})
    epoch(weighting, {"a": [1.0], "b": [1.9], "c": [2.2]})
    a, b, c = weighting._factor.tolist()
    assert a < b < c
    assert a + b + c == pytest.approx(3)


# --- FAMO --------------------------------------------------------------------------------


def test_famos_first_weights_by_hand():
    # Even logits: 1/2 and 1/8, divided by their sum.
    assert factors(FAMO(("a", "b"), CPU), {"a": 2.0, "b": 8.0}) == pytest.approx(
        {"a": 0.8, "b": 0.2}, rel=1e-5
    )


def test_famos_weights_add_up_to_1_over_all_batches_of_all_turns():
    weighting = FAMO(("a", "b", "c"), CPU)
    weighting._logits.copy_(torch.tensor([0.5, -1.0, 2.0]))
    losses = [("a", 1.0), ("b", 3.0), ("a", 0.2), ("b", 1.0)]
    total = 0.0
    for task, value in losses:
        loss = torch.tensor(value, requires_grad=True)
        (weighting(task, loss) / 2).backward()  # two turns, as the step has it
        total += loss.grad.item()
    assert total * weighting.scale(2).item() == pytest.approx(1.0)
    assert factors(weighting, {"b": 5.0}) == pytest.approx({"b": 1.0})


def literal_famo(rounds: list[tuple[Tensor, Tensor]], lr: float, gamma: float) -> Tensor:
    """Liu et al. 2023, Algorithm 1, with Adam as in the authors' code: the logits it ends at."""
    logits = torch.zeros(len(rounds[0][0]), requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=lr, weight_decay=gamma)
    for before, after in rounds:
        fell = before.log() - after.log()
        (slope,) = torch.autograd.grad(torch.softmax(logits, dim=0), logits, grad_outputs=fell)
        logits.grad = slope
        optimizer.step()
    return logits.detach()


@pytest.mark.parametrize("gamma", [0.0, 0.01, 0.5])
def test_famos_logits_follow_the_literal_algorithm(gamma):
    generator = torch.Generator().manual_seed(0)
    rounds = [tuple(torch.rand(3, generator=generator) + 0.1 for _ in range(2)) for _ in range(20)]
    weighting, names = FAMO(("a", "b", "c"), CPU, lr=0.1, gamma=gamma), "abc"
    for before, after in rounds:
        weighting.after_update(
            dict(zip(names, before, strict=True)), dict(zip(names, after, strict=True))
        )
    expected = literal_famo(rounds, 0.1, gamma)
    assert expected.abs().max() > 0.1
    torch.testing.assert_close(weighting._logits, expected, rtol=1e-4, atol=1e-5)


def test_an_update_of_one_task_tells_famo_nothing():
    weighting = FAMO(("a", "b"), CPU)
    told = {"a": torch.tensor(2.0), "b": torch.tensor(2.0)}
    weighting.after_update(told, told | {"a": torch.tensor(1.0)})
    before = {name: kept.clone() for name, kept in weighting.tensors().items()}
    first_step = [-0.025, 0.025]  # Adam's first is the rate, whatever the gradient
    assert before["logits"].tolist() == pytest.approx(first_step, rel=1e-4)
    for _ in range(5):
        weighting.after_update({"a": told["a"]}, {"a": torch.tensor(1.0)})
    for name, kept in weighting.tensors().items():
        assert torch.equal(kept, before[name]), name
