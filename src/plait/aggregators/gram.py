"""Aggregators whose answer is a weighted sum of the rows, its weights found on the CPU.

They need nothing but the tasks x tasks matrix of the gradients' inner products, so a few
numbers go to the CPU and back: the one place where a step waits for the device.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Literal

from plait.aggregators.base import Aggregator, inner_products, row_names

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from torch import Tensor


class GramAggregator(Aggregator):
    """Inner products in, weights of the tasks' gradients out.

    Gradients that are all 0 stay 0, and one task alone keeps its gradient.
    """

    def __call__(
        self,
        gradients: Tensor,
        generator: torch.Generator,  # noqa: ARG002
        tasks: Sequence[str] = (),
    ) -> Tensor:
        """Return the weighted sum of the rows."""
        if len(gradients) == 1:
            return gradients[0].clone()
        gram = inner_products(gradients).cpu()
        size = float(gram.diagonal().mean())
        if not 0 < size < math.inf:  # nothing to solve: all 0, or past mending
            return gradients.sum(dim=0)
        # Of one size whatever the losses': solvers take very small numbers for 0.
        weights = self.weights(gram / size, size, row_names(gradients, tasks))
        return weights.to(gradients) @ gradients

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
                f"it needs what an extra brings (pip install 'plait[surgery]'): {error}"
            ) from error

    @abstractmethod
    def build(self) -> Any:
        """Import torchjd and make its part that turns inner products into weights."""

    def weights(self, gram: Tensor, size: float, tasks: list[str]) -> Tensor:  # noqa: ARG002
        """Ask torchjd, whose answer is a mean."""
        found = self.solver(gram)
        return found * len(gram) if self.reduction == "sum" else found
