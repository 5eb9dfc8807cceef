"""Dense: products from kept copies are autocast's, and full precision stays full."""

from __future__ import annotations

import pytest
import torch

from plait.model.dense import Dense, renew_copies

HALF = torch.bfloat16


@pytest.fixture
def dense() -> Dense:
    torch.manual_seed(0)
    return Dense(6, 4)


def run(dense: Dense, vectors: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", HALF):
        return dense(vectors)


def test_without_copies_it_is_a_linear_layer(dense: Dense) -> None:
    vectors = torch.randn(3, 6)
    expected = torch.nn.functional.linear(vectors, dense.weight, dense.bias)
    assert torch.equal(dense(vectors), expected)
    dense.keep_copies(HALF)
    assert torch.equal(dense(vectors), expected)  # no autocast, no halves
    assert set(dense.state_dict()) == {"weight", "bias"}


def test_copies_give_what_autocast_gives(dense: Dense) -> None:
    vectors = torch.randn(2, 3, 6)
    gradients = []
    for keeps in (False, True):
        dense.zero_grad(set_to_none=True)
        if keeps:
            dense.keep_copies(HALF)
        given = vectors.clone().requires_grad_()
        out = run(dense, given)
        assert out.dtype == HALF
        out.float().square().sum().backward()
        gradients.append((out.detach(), dense.weight.grad, dense.bias.grad, given.grad))
    for one, other in zip(*gradients, strict=True):
        assert one is not None
        assert other is not None
        assert torch.allclose(one.float(), other.float(), atol=0.02, rtol=0.02)
    assert gradients[1][1].dtype == torch.float32


def test_copies_follow_when_they_are_renewed(dense: Dense) -> None:
    vectors = torch.randn(3, 6)
    dense.keep_copies(HALF)
    before = run(dense, vectors)
    with torch.no_grad():
        dense.weight.mul_(2)
        dense.bias.mul_(2)
    assert torch.allclose(run(dense, vectors).float(), 2 * before.float(), atol=0.05)  # not stale
    renew_copies([dense])
    assert dense.copies is not None
    assert torch.equal(dense.copies[0], dense.weight.to(HALF))
    assert torch.allclose(run(dense, vectors).float(), 2 * before.float(), atol=0.05)


def test_a_frozen_weight_gets_no_gradient(dense: Dense) -> None:
    dense.keep_copies(HALF)
    dense.weight.requires_grad_(False)
    run(dense, torch.randn(3, 6)).float().sum().backward()
    assert dense.weight.grad is None
    assert dense.bias.grad is not None
