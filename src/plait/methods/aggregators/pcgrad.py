"""Gradient surgery (Yu et al. 2020, Gradient Surgery for Multi-Task Learning, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from plait.methods.aggregators.base import AGGREGATORS, Mixing, draw_orders

if TYPE_CHECKING:
    from torch import Tensor


@AGGREGATORS.register("pcgrad")
@dataclass(kw_only=True)
class PCGrad(Mixing):
    """Projects each task's gradient off those it conflicts with, then adds them up.

    For each task i and every other j in random order: where g_i . g_j < 0, the part of g_i
    along the original g_j is taken out. `reduction = "mean"` divides the sum by the number of
    tasks, as common ports do; the encoder then learns slower than the heads.
    """

    capturable = True

    reduction: Literal["sum", "mean"] = "sum"

    def mix(self, gram: Tensor, generator: torch.Generator, tasks: list[str]) -> Tensor:
        """Return what the sum, or mean, of the projected gradients has of each."""
        # Every projected g_i is a mix of the original gradients, so the whole algorithm runs on the
        # tasks x tasks matrix of inner products: row i of `mix` is what g_i has of each so far.
        num_tasks = len(tasks)
        mix = torch.eye(num_tasks, device=gram.device, dtype=gram.dtype)
        others = 1 - mix
        for j in draw_orders(gram, generator):  # the next j of every task i at once; row i marks it
            inner = (mix @ gram * j).sum(dim=1)  # g_i . g_j, g_i as projected so far
            norm = (j @ gram.diagonal()).clamp(min=torch.finfo(gram.dtype).tiny)
            conflict = inner.clamp(max=0) * (j * others).sum(dim=1)  # j = i is passed over
            mix = mix - (conflict / norm).unsqueeze(1) * j
        weights = mix.sum(dim=0)
        return weights / num_tasks if self.reduction == "mean" else weights
