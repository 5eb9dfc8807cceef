"""A running mean of the weights, which is scored and saved instead of the weights."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from plait.model.dense import Dense, renew_copies

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import Tensor, nn


class RunningMean:
    """What trains of a model, averaged over the updates (Polyak and Juditsky 1992).

    After update n the mean moves by 1 - min(decay, (1 + n) / (10 + n)) towards the weights, so that
    the weights that training began with are soon forgotten, however short it is.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.weights = {n: p for n, p in model.named_parameters() if p.requires_grad}
        self.means = {name: p.detach().clone() for name, p in self.weights.items()}
        self._dense = [part for part in model.modules() if isinstance(part, Dense)]

    @torch.no_grad()
    def follow(self, num_updates: int) -> None:
        """Add the weights after the latest update."""
        share = 1 - min(self.decay, (1 + num_updates) / (10 + num_updates))
        torch._foreach_lerp_(list(self.means.values()), list(self.weights.values()), share)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Use the mean as the model's weights in the block."""
        latest = {name: p.detach().clone() for name, p in self.weights.items()}
        self.settle()
        try:
            yield
        finally:
            self._put(latest)

    def settle(self) -> None:
        """Replace the model's weights by the mean."""
        self._put(self.means)

    @torch.no_grad()
    def _put(self, values: Mapping[str, Tensor]) -> None:
        for name, parameter in self.weights.items():
            parameter.copy_(values[name])
        renew_copies(self._dense)

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the means of a checkpoint."""
        for name, mean in self.means.items():
            mean.copy_(tensors[name])
