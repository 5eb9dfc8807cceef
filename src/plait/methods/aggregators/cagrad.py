"""CAGrad (Liu et al. 2021, Conflict-Averse Gradient Descent for Multi-task Learning,
Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from plait.methods.aggregators.base import AGGREGATORS
from plait.methods.aggregators.gram import TorchJDAggregator


@AGGREGATORS.register("cagrad")
@dataclass(kw_only=True)
class CAGrad(TorchJDAggregator):
    """Stays near the mean gradient and does as much as it can for the task that gains least.

    Of all vectors no further than `c` times its length from the mean gradient, it takes the one
    whose smallest inner product with a task's gradient is largest. `c = 0` is the mean, a large
    `c` nears MGDA's direction; the paper has 0 <= c < 1. The paper's mean is the default; with
    `reduction = "sum"` the answer is times the number of tasks, so that `c = 0` is the plain
    sum. One task alone keeps its gradient. Through torchjd.
    """

    c: float = 0.5
    reduction: Literal["mean", "sum"] = "mean"

    def build(self) -> Any:
        """Make torchjd's solver."""
        from torchjd.aggregation import CAGradWeighting

        return CAGradWeighting(c=self.c)
