"""Plain multitask learning: the gradient of the summed losses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.methods.aggregators.base import AGGREGATORS, Aggregator

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from torch import Tensor


@AGGREGATORS.register("sum")
@dataclass(kw_only=True)
class Sum(Aggregator):
    """Adds the tasks' gradients up.

    `watch = true` keeps them apart until then, so that their conflicts can be recorded: the
    same sum up to rounding, for a copy of the gradient per task.
    """

    capturable = True

    watch: bool = False

    per_task = False

    def __post_init__(self) -> None:
        self.per_task = self.watch

    def __call__(
        self,
        gradients: Tensor,
        generator: torch.Generator,  # noqa: ARG002
        tasks: Sequence[str] = (),  # noqa: ARG002
    ) -> Tensor:
        """Return the sum of the rows."""
        return gradients[0] if len(gradients) == 1 else gradients.sum(dim=0)
