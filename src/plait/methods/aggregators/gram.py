"""Aggregators whose answer is a weighted sum of the rows, its weights found on the CPU.

They need nothing but the tasks x tasks matrix of the gradients' inner products, so a few
numbers go to the CPU and back: the one place where a step waits for the device.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal

import torch

from plait.methods.aggregators.base import Mixing

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


class GramAggregator(Mixing):
    """Inner products in, weights of the tasks' gradients out.

    Gradients that are all 0 stay 0, and one task alone keeps its gradient.
    """

    def mix(self, gram: Tensor, generator: torch.Generator, tasks: list[str]) -> Tensor:  # noqa: ARG002
        """Find the weights on the CPU."""
        ones = torch.ones_like(gram[0])
        if len(tasks) == 1:
            return ones
        here = gram.cpu()
        size = float(here.diagonal().mean())
        if not 0 < size < math.inf:  # nothing to solve: all 0, or past mending
            return ones
        # Of one size whatever the losses': solvers take very small numbers for 0.
        return self.weights(here / size, size, tasks).to(gram)

    @abstractmethod
    def weights(self, gram: Tensor, size: float, tasks: list[str]) -> Tensor:
        """Return a weight per task from the inner products over `size`, their mean square."""


class TorchJDAggregator(GramAggregator):
    """A method of torchjd, which comes with an extra of plait's."""

    solver: Callable[[Tensor], Tensor]
    reduction: Literal["mean", "sum"]

    def __post_init__(self) -> None:
        try:
            self.solver = self.build()
        except ImportError as error:
            raise ValueError(
                f"it needs an extra (pip install 'plait[surgery]'): {error}"
            ) from error

    @abstractmethod
    def build(self) -> Any:
        """Import torchjd and make its part that turns inner products into weights."""

    def weights(self, gram: Tensor, size: float, tasks: list[str]) -> Tensor:  # noqa: ARG002
        """Ask torchjd, whose answer is a mean."""
        found = self.solver(gram)
        return found * len(gram) if self.reduction == "sum" else found
