"""Products against float64's: right ones pass, wrong ones are seen."""

from __future__ import annotations

import pytest
import torch

from plait.model import products
from plait.model.products import BOUND, compare_products

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_a_cpu_computes_what_it_should(dtype):
    furthest = compare_products(CPU, (16, 40), dtype)
    assert furthest.keys() == {"forward", "to_inputs", "to_weights"}
    low, high = (1e-4, BOUND) if dtype == torch.bfloat16 else (1e-9, 1e-6)
    assert all(low < away < high for away in furthest.values())


@pytest.mark.parametrize("wrong", [0.0, float("nan")])
def test_wrong_products_are_seen(monkeypatch, wrong):
    real = torch.nn.functional.linear

    def linear(x, w):
        out = real(x, w)
        if len(x) == 40:
            out[:8] *= wrong
        return out

    monkeypatch.setattr(products.F, "linear", linear)
    furthest = compare_products(CPU, (40, 16))
    assert furthest["forward"] > 0.1
    assert furthest["to_inputs"] < BOUND
