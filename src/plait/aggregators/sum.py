"""Plain multitask learning: the gradient of the summed losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.aggregators.base import AGGREGATORS, Aggregator

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@AGGREGATORS.register("sum")
@dataclass(kw_only=True)
class Sum(Aggregator):
    """Adds the tasks' gradients up."""

    per_task = False

    def __call__(self, gradients: Tensor, generator: torch.Generator) -> Tensor:  # noqa: ARG002
        """Return the sum of the rows."""
        return gradients[0] if len(gradients) == 1 else gradients.sum(dim=0)
