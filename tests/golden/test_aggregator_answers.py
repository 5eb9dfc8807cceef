"""Aggregators against answers by hand, the literal algorithm, and another implementation."""

from __future__ import annotations

import re
from itertools import permutations, product
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from plait.methods.aggregators.pcgrad import PCGrad
from plait.methods.aggregators.sum import Sum


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(num_tasks: int, num_parameters: int, seed: int) -> Tensor:
    return torch.randn(num_tasks, num_parameters, generator=generator(seed))


def test_sum():
    gradients = torch.tensor([[1.0, 2.0], [3.0, -5.0], [0.5, 0.0]])
    assert Sum()(gradients, generator()).tolist() == [4.5, -3.0]
    assert not Sum.per_task
    assert PCGrad.per_task


# --- PCGrad ------------------------------------------------------------------------------


def literal_pcgrad(gradients: Tensor, orders: list[tuple[int, ...]]) -> Tensor:
    """Yu et al. 2020, Algorithm 1, line by line in float64; `orders` has the order of each i."""
    original = gradients.double()
    projected = original.clone()
    for i, order in enumerate(orders):
        for j in order:
            if j == i:
                continue
            inner = projected[i] @ original[j]
            if inner < 0:
                projected[i] -= inner / (original[j] @ original[j]) * original[j]
    return projected.sum(dim=0)


def every_outcome(gradients: Tensor) -> Tensor:
    """The answers of all orders there are, [outcomes, parameters]."""
    tasks = range(len(gradients))
    own = [list(permutations([j for j in tasks if j != i])) for i in tasks]
    return torch.stack([literal_pcgrad(gradients, list(orders)) for orders in product(*own)])


def distance(outcomes: Tensor, answer: Tensor) -> float:
    """From an answer to the nearest of the outcomes."""
    return (outcomes - answer.double()).abs().amax(dim=1).min().item()


def test_two_gradients_in_conflict():
    gradients = torch.tensor([[1.0, 0.0], [-1.0, 1.0]])
    # g1 . g2 = -1. g1 + 1/2 g2 = (0.5, 0.5); g2 + 1 g1 = (0, 1).
    torch.testing.assert_close(PCGrad()(gradients, generator()), torch.tensor([0.5, 1.5]))
    torch.testing.assert_close(
        PCGrad(reduction="mean")(gradients, generator()), torch.tensor([0.25, 0.75])
    )


@pytest.mark.parametrize("num_tasks", [2, 3, 5])
def test_gradients_that_agree_are_left_alone(num_tasks):
    gradients = draw(num_tasks, 20, seed=1).abs()
    torch.testing.assert_close(PCGrad()(gradients, generator()), gradients.sum(dim=0))


def test_no_gradient_is_projected_on_itself():
    """Alone, -g . g < 0 would be a conflict; the answer is the gradient."""
    gradients = -draw(1, 8, seed=2).abs()
    torch.testing.assert_close(PCGrad()(gradients, generator()), gradients[0])
    twice = gradients.repeat(2, 1)
    torch.testing.assert_close(PCGrad()(twice, generator()), 2 * gradients[0])


@given(st.integers(1, 40), st.integers(0, 10_000))
def test_two_tasks_equal_the_literal_algorithm(num_parameters, seed):
    gradients = draw(2, num_parameters, seed)
    expected = literal_pcgrad(gradients, [(1,), (0,)])
    actual = PCGrad()(gradients, generator(seed)).double()
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_tasks", [3, 4])
def test_more_tasks_equal_the_literal_algorithm_in_some_order(num_tasks):
    for seed in range(3):
        gradients = draw(num_tasks, 5, seed)
        outcomes = every_outcome(gradients)
        for shuffle in range(4):
            assert distance(outcomes, PCGrad()(gradients, generator(shuffle))) < 1e-4


def test_the_algorithm_on_the_page_is_the_literal_one():
    page = Path(__file__).parents[2] / "docs" / "concepts" / "training.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
    (code,) = (block for block in blocks if "def pcgrad" in block)
    shown: dict = {}
    exec(compile(code, str(page), "exec"), shown)
    gradients = draw(3, 5, seed=1)
    outcomes = every_outcome(gradients)
    for _ in range(4):
        assert distance(outcomes, shown["pcgrad"](gradients)) < 1e-5
    assert distance(outcomes, gradients.sum(dim=0)) > 0.1  # there is something to take out


def test_every_order_comes_up():
    """Three tasks have 2 x 2 x 2 orders; each answer is given about as often as its orders."""
    gradients = torch.tensor([[1.0, 0.2, -0.5], [-0.8, 0.9, 0.1], [-0.3, -1.0, 0.7]])
    outcomes = every_outcome(gradients)
    apart = torch.cdist(outcomes, outcomes)
    assert apart[apart > 0].min() > 1e-3  # the eight differ, or are the same
    counts = [0] * len(outcomes)
    for seed in range(400):
        answer = PCGrad()(gradients, generator(seed)).double()
        counts[int((outcomes - answer).abs().amax(dim=1).argmin())] += 1
    same = [int((row < 1e-9).sum()) for row in apart]
    expected = {i: 400 * n / 8 for i, n in enumerate(same) if (apart[i, :i] > 1e-9).all()}
    assert len(expected) > 1, "the example has more than one answer"
    assert sum(counts[i] for i in expected) == 400
    for i, number in expected.items():
        assert abs(counts[i] - number) < 4 * number**0.5


def test_it_equals_torchjd():
    """Two tasks have one answer; of more, each of theirs is one of the possible ones."""
    weighting = pytest.importorskip("torchjd.aggregation").PCGradWeighting()
    for seed in range(10):
        gradients = draw(2, 9, seed)
        theirs = weighting(gradients @ gradients.T) @ gradients
        torch.testing.assert_close(
            PCGrad()(gradients, generator(seed)), theirs, rtol=1e-4, atol=1e-5
        )
    gradients = draw(3, 9, seed=20)
    ours = torch.stack([PCGrad()(gradients, generator(s)) for s in range(60)]).double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for _ in range(20):
            assert distance(ours, weighting(gradients @ gradients.T) @ gradients) < 1e-4
