"""A device's products of matrices are held against float64's.

A GPU can compute wrongly without a word: held to a part of its multiprocessors
(CUDA_MPS_ACTIVE_THREAD_PERCENTAGE), an H200 was seen to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

from plait.model.dense import weight_gradient

if TYPE_CHECKING:
    from collections.abc import Iterable

SHAPES = ((1152, 384), (384, 384), (1536, 384), (384, 1536), (768, 3072))
"""Outputs and inputs of linear layers, as small and middling encoders have them."""
FEW_ROWS = tuple(range(16, 420, 36))
"""Tokens of small batches."""
BOUND = 0.004
"""What bf16 may be away: its rounding alone is .0017."""


@torch.no_grad()
def compare_products(
    device: torch.device, rows: Iterable[int] = FEW_ROWS, dtype: torch.dtype = torch.bfloat16
) -> dict[str, float]:
    """Return the largest relative errors of what a linear layer computes, by what it is.

    `forward` is x W^T, `to_inputs` and `to_weights` are its gradients; infinite for what is no
    number.
    """
    furthest = dict.fromkeys(("forward", "to_inputs", "to_weights"), 0.0)
    generator = torch.Generator(device).manual_seed(0)
    for num_outputs, num_inputs in SHAPES:
        for num in rows:
            w, x, g = (
                torch.randn(shape, device=device, generator=generator).to(dtype)
                for shape in ((num_outputs, num_inputs), (num, num_inputs), (num, num_outputs))
            )
            weight = nn.Parameter(w.float())
            weight.grad = torch.zeros_like(weight)
            made = weight_gradient(weight, g, x)
            w64, x64, g64 = w.double(), x.double(), g.double()
            pairs = {
                "forward": (F.linear(x, w), x64 @ w64.t()),
                "to_inputs": (g @ w, g64 @ w64),
                "to_weights": (weight.grad if made is None else made, g64.t() @ x64),
            }
            for name, (found, expected) in pairs.items():
                away = float((found.double() - expected).norm() / expected.norm())
                furthest[name] = max(furthest[name], away if away < float("inf") else float("inf"))
    return furthest
