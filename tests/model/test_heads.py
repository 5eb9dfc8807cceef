"""Heads against direct computation in numpy, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from plait.errors import RecipeError
from plait.model.heads import HEADS, Head

WIDTH = 4
U = np.array([[1.0, -2.0, 0.5, 3.0], [0.0, 1.0, 1.0, -1.0], [2.0, 2.0, 2.0, 2.0]])
V = np.array([[2.0, 1.0, -0.5, 1.0], [0.0, -1.0, -1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
COSINES = (U * V).sum(1, keepdims=True) / (
    np.linalg.norm(U, axis=1, keepdims=True) * np.linalg.norm(V, axis=1, keepdims=True)
)
VECTORS = torch.from_numpy(np.concatenate([U, V])).float()

FEATURES = {
    ("u", "v"): np.concatenate([U, V], axis=1),
    ("u", "v", "|u-v|"): np.concatenate([U, V, np.abs(U - V)], axis=1),
    ("u", "v", "cos"): np.concatenate([U, V, COSINES], axis=1),
    ("u*v",): U * V,
    ("|u-v|", "u*v"): np.concatenate([np.abs(U - V), U * V], axis=1),
    ("cos",): COSINES,
    ("v", "u"): np.concatenate([V, U], axis=1),
}


def build(name: str, num_outputs: int = 1, *, apart: bool = True, **settings: object) -> Head:
    table = {"name": name, **settings}
    return HEADS.build(table, "tasks.x.head", WIDTH, num_outputs, apart).eval()


def array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


@pytest.mark.parametrize("features", FEATURES, ids="-".join)
def test_linear_of_the_features(features):
    head = build("linear", 3, features=list(features))
    expected = FEATURES[features]
    assert head.out.in_features == expected.shape[1]
    by_hand = expected @ array(head.out.weight).T + array(head.out.bias)
    np.testing.assert_allclose(array(head(VECTORS)), by_hand, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("features", FEATURES, ids="-".join)
def test_mlp_of_the_features(features):
    head = build("mlp", 2, features=list(features), hidden=5)
    assert head.hidden.in_features == FEATURES[features].shape[1]
    hidden = np.tanh(FEATURES[features] @ array(head.hidden.weight).T + array(head.hidden.bias))
    by_hand = hidden @ array(head.out.weight).T + array(head.out.bias)
    np.testing.assert_allclose(array(head(VECTORS)), by_hand, rtol=1e-5, atol=1e-5)


def test_cosine():
    head = build("cosine")
    np.testing.assert_allclose(array(head(VECTORS)), COSINES, rtol=1e-5)
    assert list(head.parameters()) == []
    # 2 - 2 - 0.25 + 3 over the norms; opposite; parallel
    assert COSINES[:, 0] == pytest.approx([2.75 / np.sqrt(14.25 * 6.25), -1.0, 1.0])


def test_the_cosine_with_a_vector_of_0_is_0_and_so_is_its_gradient():
    given = torch.zeros(2, WIDTH).requires_grad_()
    value = build("cosine")(given)
    value.sum().backward()
    assert value.tolist() == [[0.0]]
    assert given.grad.isfinite().all()


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"name": "linear", "features": ["u", "w"]}, r"tasks\.x\.head\.features = .*'\|u-v\|'"),
        ({"name": "linear", "features": []}, "tasks.x.head: features is empty"),
        ({"name": "mlp", "hidden": 0}, "tasks.x.head: hidden must be 1 or more, not 0"),
        ({"name": "linear", "dropout": 1.5}, "tasks.x.head: dropout probability"),
        ({"name": "cosine", "features": ["u"]}, "features is not a setting of head 'cosine'"),
        ({"name": "liner"}, "no head 'liner'; did you mean 'linear'"),
    ],
)
def test_what_cannot_be_built(table, message):
    with pytest.raises(RecipeError, match=message) as caught:
        HEADS.build(table, "tasks.x.head", WIDTH, 1, True)
    assert "\n" not in str(caught.value)
