"""What both kinds of SMART share: noise on the input, moved to where the outputs change most."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from plait.methods.regularizers.base import Weighted
from plait.methods.regularizers.divergences import Variant, inner_distance
from plait.methods.regularizers.passes import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from plait.methods.losses import Loss
    from plait.model.multitask import Group, MultitaskModel


@dataclass(kw_only=True)
class Perturbing(Weighted):
    """A regularizer that looks for a perturbation under which the outputs change most."""

    capturable = True
    sizes: ClassVar[tuple[str, ...]]
    """Names of the settings that must be above 0."""

    variant: Variant = 0
    sigma: float = 1e-5
    inner_steps: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.sizes:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.inner_steps < 1:
            raise ValueError(f"inner_steps must be 1 or more, not {self.inner_steps}")

    def perturb(
        self, model: MultitaskModel, group: Group, clean: Sequence[Tensor], losses: Sequence[Loss]
    ) -> Tensor:
        """Return x~ - x after the inner steps, [rows, length, width]; 0 at padding."""
        tokens = group.tokens
        real = tokens.mask.unsqueeze(-1)
        words = model.encoder.word_embeddings(tokens.ids).detach()
        change = self.sigma * torch.randn_like(words) * real
        for _ in range(self.inner_steps):
            change.requires_grad_()
            with frozen(model):  # only the way back to the input is wanted
                moved = self.disturbed(model, group, change)
            # A sum: an example's direction does not depend on how many others there are.
            apart = [
                inner_distance(self.variant, *each).sum()
                for each in zip(losses, clean, moved, strict=True)
            ]
            distance = torch.stack(apart).sum()
            (gradient,) = torch.autograd.grad(distance, change)
            change = self.move(change.detach(), gradient * real)
        return change

    @abstractmethod
    def disturbed(self, model: MultitaskModel, group: Group, change: Tensor) -> list[Tensor]:
        """Return each task's outputs with the input changed."""

    @abstractmethod
    def move(self, change: Tensor, gradient: Tensor) -> Tensor:
        """Take one inner step from a perturbation along the gradient of the distance."""
