"""What every aggregator must do, over all registered ones."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from plait.errors import RecipeError
from plait.methods.aggregators import AGGREGATORS, Aggregator

# The paper wants its answer to be of one length, whatever the gradients'.
UNSCALED = {"nash-mtl"}


@pytest.fixture
def aggregator(aggregator_table) -> Aggregator:
    """One aggregator after the other."""
    try:
        return AGGREGATORS.build(aggregator_table, "train.aggregator")
    except RecipeError as error:
        if "plait[surgery]" not in str(error):
            raise
        pytest.skip(str(error))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(num_tasks: int, num_parameters: int = 12, seed: int = 0) -> Tensor:
    return torch.randn(num_tasks, num_parameters, generator=generator(seed))


def test_it_makes_one_finite_gradient_of_any_number(aggregator):
    for num_tasks in range(1, 6):
        gradients = draw(num_tasks)
        before = gradients.clone()
        combined = aggregator(gradients, generator())
        assert combined.shape == (12,)
        assert combined.dtype == gradients.dtype
        assert combined.isfinite().all()
        assert torch.equal(gradients, before), "the tasks' gradients are left as they were"


def test_one_task_keeps_its_gradient(aggregator):
    gradients = draw(1)
    torch.testing.assert_close(aggregator(gradients, generator()), gradients[0])


def test_it_stays_in_the_span_of_the_gradients(aggregator):
    gradients = draw(3)
    combined = aggregator(gradients, generator())
    solution = torch.linalg.lstsq(gradients.T, combined.unsqueeze(1)).solution
    torch.testing.assert_close((gradients.T @ solution).squeeze(1), combined, rtol=0, atol=1e-5)


def test_gradients_of_0_do_no_harm(aggregator):
    for zeros in ((0,), (1,), (0, 2), (0, 1, 2)):
        gradients = draw(3)
        gradients[list(zeros)] = 0.0
        combined = aggregator(gradients, generator())
        assert combined.isfinite().all()
        if len(zeros) == 3:
            assert not combined.any()


def test_equal_and_opposite_gradients_do_no_harm(aggregator):
    for seed in range(8):  # rounding may put a cosine beyond 1
        one = draw(1, seed=seed)[0]
        assert aggregator(torch.stack([one, -3 * one]), generator()).isfinite().all()
        assert aggregator(torch.stack([one, one, -one]), generator()).isfinite().all()


def test_it_repeats_exactly_under_its_generator(aggregator):
    gradients = draw(5)
    first, second = (deepcopy(aggregator)(gradients, generator(3)) for _ in range(2))
    assert torch.equal(first, second)


def test_what_it_remembers_can_be_saved_and_taken_back(aggregator, aggregator_table):
    """Two that share a past, one of them by way of a checkpoint, have the same future."""
    names = ["a", "b", "c"]
    for seed in range(4):
        aggregator(draw(3, seed=seed), generator(seed), names)
        aggregator(draw(2, seed=seed), generator(seed), names[1:])
    again = AGGREGATORS.build(aggregator_table, "train.aggregator")
    again.load_tensors({name: t.clone() for name, t in aggregator.tensors().items()})
    for seed in range(4, 8):
        gradients = draw(3, seed=seed)
        ours = aggregator(gradients, generator(seed), names)
        assert torch.equal(ours, again(gradients, generator(seed), names))
    kept, other = aggregator.tensors(), again.tensors()
    assert kept.keys() == other.keys()
    assert all(torch.equal(kept[name], other[name]) for name in kept)


def test_gradients_that_are_no_numbers_are_passed_on(aggregator):
    for bad in (torch.nan, torch.inf):
        gradients = draw(3)
        gradients[1, 4] = bad
        assert not aggregator(gradients, generator())[4].isfinite()


def test_randomness_comes_from_its_generator_alone(aggregator):
    gradients, place = draw(5), torch.random.get_rng_state()
    aggregator(gradients, generator(3))
    assert torch.equal(torch.random.get_rng_state(), place)


def test_it_scales_with_the_gradients(aggregator, aggregator_table):
    if aggregator_table["name"] in UNSCALED:
        pytest.skip("it does not, and is not meant to")

    @settings(max_examples=25)
    @given(st.integers(1, 5), st.integers(0, 99), st.floats(0.01, 100))
    def check(num_tasks, seed, scale):
        gradients = draw(num_tasks, seed=seed)
        torch.testing.assert_close(
            deepcopy(aggregator)(gradients * scale, generator()),
            deepcopy(aggregator)(gradients, generator()) * scale,
            rtol=1e-4,
            atol=1e-4 * scale,
        )

    check()


def test_agreeing_tasks_all_gain_by_it(aggregator):
    """A step along it goes down for every task, where the gradients agree."""
    gradients = draw(4).abs()
    assert (gradients @ aggregator(gradients, generator()) > 0).all()
