"""What every head must do, over all registered ones."""

from __future__ import annotations

from contextlib import suppress
from itertools import product

import pytest
import torch
from torch import Tensor

from plait.errors import RecipeError
from plait.model.heads import HEADS, Head

WIDTH, EXAMPLES = 6, 4


def build(table: dict, *, apart: bool, num_outputs: int = 1) -> Head:
    """Make a head, the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return HEADS.build(table, "tasks.x.head", WIDTH, num_outputs, apart)


@pytest.fixture
def builds(head_table) -> list[tuple[Head, bool, int]]:
    """The head in every situation it allows: texts joined or apart, one output or three."""
    made = []
    for apart, num_outputs in product((False, True), (1, 3)):
        with suppress(RecipeError):
            head = build(head_table, apart=apart, num_outputs=num_outputs)
            made.append((head, apart, num_outputs))
    assert made
    return made


def vectors(apart: bool, num_examples: int = EXAMPLES, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_examples * (2 if apart else 1), WIDTH, generator=generator)


def test_one_row_of_outputs_per_example(builds):
    for head, apart, num_outputs in builds:
        for num_examples in (1, EXAMPLES):
            outputs = head(vectors(apart, num_examples))
            assert outputs.shape == (num_examples, num_outputs)
            assert outputs.isfinite().all()


def test_examples_do_not_touch_one_another(builds):
    for head, apart, _ in builds:
        head.eval()
        given = vectors(apart)
        outputs = head(given)
        for i in range(EXAMPLES):
            rows = [i, i + EXAMPLES] if apart else [i]
            torch.testing.assert_close(head(given[rows]), outputs[i : i + 1])


def test_gradients_reach_the_vectors_and_every_parameter(builds):
    for head, apart, _ in builds:
        head.eval()
        given = vectors(apart).requires_grad_()
        head(given).square().sum().backward()
        assert given.grad.isfinite().all()
        assert (given.grad.abs().sum(dim=1) > 0).all()
        assert all(p.grad.abs().sum() > 0 for p in head.parameters())


def test_dropout_only_in_training(head_table):
    head = build({**head_table, "dropout": 0.5}, apart=True)
    given = vectors(apart=True)
    torch.manual_seed(1)
    assert not torch.equal(head(given), head(given))
    head.eval()
    assert torch.equal(head(given), head(given))
    off = build({**head_table, "dropout": 0.0}, apart=True)
    assert torch.equal(off(given), head(given))


def test_cosines_stay_between_minus_1_and_1(head_table):
    head = build(head_table, apart=True).eval()
    if head.gives == "cosine":
        outputs = head(100 * vectors(apart=True, num_examples=50))
        assert -1 - 1e-6 <= outputs.min() <= outputs.max() <= 1 + 1e-6


def test_half_precision_vectors_pass_under_autocast(builds):
    for head, apart, _ in builds:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = head.eval()(vectors(apart).bfloat16())
        torch.testing.assert_close(outputs.float(), head(vectors(apart)), rtol=0.1, atol=0.1)
