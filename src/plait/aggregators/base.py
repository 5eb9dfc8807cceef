"""The contract of the aggregators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

from plait.registry import Registry

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class Aggregator(ABC):
    """Task gradients in, one gradient out."""

    per_task: ClassVar[bool] = True
    """Whether it must see each task's gradient. If not, the step adds them up as they come
    and hands over a single row, which saves a copy of the gradient per task."""

    @abstractmethod
    def __call__(self, gradients: Tensor, generator: torch.Generator) -> Tensor:
        """Turn [tasks, parameters] into [parameters], without waiting for the device.

        Randomness comes from `generator`, which lives where the gradients do.
        """


AGGREGATORS: Registry[Aggregator] = Registry("aggregator", "task gradients -> one gradient")
