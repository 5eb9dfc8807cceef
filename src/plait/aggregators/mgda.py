"""MGDA (Désidéri 2012, Multiple-gradient descent algorithm; with the solver of Sener and
Koltun 2018, Multi-Task Learning as Multi-Objective Optimization, Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from plait.aggregators.base import AGGREGATORS
from plait.aggregators.gram import TorchJDAggregator


@AGGREGATORS.register("mgda")
@dataclass(kw_only=True)
class MGDA(TorchJDAggregator):
    """Takes the shortest vector between the tasks' gradients: no task loses by a step along it.

    The shortest weighted mean, found by Frank-Wolfe in at most `max_iters` rounds, or until
    one changes the weights by less than `epsilon`. A task whose gradient is small decides
    alone, and one whose gradient is 0 stops the encoder. Gradients are taken as they come; the
    paper's ways to normalise them are left to the tasks' weights. Through torchjd.
    """

    epsilon: float = 1e-5
    max_iters: int = 250

    def build(self) -> Any:
        """Make torchjd's solver."""
        from torchjd.aggregation import MGDAWeighting

        return MGDAWeighting(epsilon=self.epsilon, max_iters=self.max_iters)
