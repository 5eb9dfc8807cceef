"""SMART as its public codes run it: noise of size 1 in every word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from plait.regularizers.base import REGULARIZERS, Weighted
from plait.regularizers.divergences import Variant, inner_distance, last_distance

if TYPE_CHECKING:
    from torch import Tensor

    from plait.losses import Loss
    from plait.model.multitask import MultitaskModel
    from plait.types import Batch


@REGULARIZERS.register("smart-unit")
@dataclass(kw_only=True)
class SMARTUnit(Weighted):
    """SMART with noise of size 1, as the public codes have it and the four systems ran it.

    After Jiang et al. 2020, https://arxiv.org/abs/1911.03437, but for what becomes of the
    perturbation: noise of size `sigma` moves by `step_size` along the gradient of the distance
    and is then divided by its largest entry (plus `epsilon`, against division by 0), word by
    word. So every word's perturbation has size 1, far more than the embeddings themselves,
    and points nearly where the noise happened to: a strong, almost random disturbance rather
    than the worst one of a tiny ball.

    `weight` and `variant` as in smart, `inner_steps` times the above. The outputs of the
    training pass are the reference and the other passes draw their own dropout, as there; so
    it lives in the run's precision, bf16 included. Cost, in passes: 2.7 times a plain step.

    Departures from those codes: padding gets no noise; the term is the mean over the examples
    (one of them sums symmetric KL over the batch, so that its weight grows with the batch),
    and symmetric KL has its whole gradient (they hold one side of each half constant). The
    inner gradient is each example's own, whatever the size of the batch.
    """

    variant: Variant = 0
    epsilon: float = 1e-6
    sigma: float = 1e-5
    step_size: float = 1e-3
    inner_steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("epsilon", "sigma", "step_size"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.inner_steps < 1:
            raise ValueError(f"inner_steps must be 1 or more, not {self.inner_steps}")

    def term(
        self, model: MultitaskModel, task: str, batch: Batch, outputs: Tensor, loss: Loss
    ) -> Tensor:
        """Return the mean distance between the outputs and those of the disturbed input."""
        change = self.perturb(model, task, batch, outputs.detach(), loss)
        words = model.encoder.word_embeddings(batch.tokens.ids)
        moved = model(task, batch.tokens, words + change)
        return last_distance(self.variant, loss, outputs, moved).mean()

    def perturb(
        self, model: MultitaskModel, task: str, batch: Batch, clean: Tensor, loss: Loss
    ) -> Tensor:
        """Return the disturbance, [rows, length, width], at most 1 in every entry."""
        words = model.encoder.word_embeddings(batch.tokens.ids).detach()
        real = batch.tokens.mask.unsqueeze(-1)
        change = self.sigma * torch.randn_like(words) * real
        for _ in range(self.inner_steps):
            change.requires_grad_()
            moved = model(task, batch.tokens, words + change)
            distance = inner_distance(self.variant, loss, clean, moved).sum()
            (gradient,) = torch.autograd.grad(distance, change)
            step = change.detach() + self.step_size * gradient * real
            change = step / (step.abs().amax(dim=-1, keepdim=True) + self.epsilon)
        return change
