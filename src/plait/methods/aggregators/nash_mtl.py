"""Nash-MTL (Navon et al. 2022, Multi-Task Learning as a Bargaining Game, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from plait.methods.aggregators.base import AGGREGATORS
from plait.methods.aggregators.gram import GramAggregator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


@AGGREGATORS.register("nash-mtl")
@dataclass(kw_only=True)
class NashMTL(GramAggregator):
    """Lets the tasks bargain: the product of what each gains by the step is as large as can be.

    The weights w solve G w = 1 / w, G being the gradients' inner products. The answer has
    length sqrt(tasks) whatever the losses, and no task can outweigh the others by its scale;
    like the authors' code we cut it to `max_norm` (0: not at all). Weights are found anew every
    `every` updates, as in the paper, and whenever other tasks take part than before.

    We solve the equation exactly, by Newton's method on the convex function it is the
    stationary point of, where the paper goes through a series of approximations; this needs no
    solver under the GPL. One task alone keeps its gradient.
    """

    max_norm: float = 1.0
    every: int = 1

    def __post_init__(self) -> None:
        if self.max_norm < 0:
            raise ValueError(f"max_norm = {self.max_norm} is below 0")
        if self.every < 1:
            raise ValueError(f"every = {self.every} is below 1")
        self._kept: dict[str, Tensor] = {}
        self._age = 0
        """Updates that the kept weights have served."""

    def weights(self, gram: Tensor, size: float, tasks: list[str]) -> Tensor:
        """Solve, or use what was found before."""
        gram = gram.double()
        if self._age >= self.every or self._kept.keys() != set(tasks):
            found = _bargain(gram) / size**0.5
            self._kept, self._age = dict(zip(tasks, found, strict=True)), 0
        self._age += 1
        weights = torch.stack([self._kept[task] for task in tasks])
        norm = (weights @ gram @ weights * size).clamp(min=0).sqrt()
        if self.max_norm and norm > self.max_norm:
            weights = weights * (self.max_norm / norm)
        return weights

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights at hand and how long they have been used."""
        kept = {f"weight/{task}": weight for task, weight in self._kept.items()}
        return {"age": torch.tensor(self._age), **kept}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the weights back."""
        self._age = int(tensors["age"])
        self._kept = {
            name.removeprefix("weight/"): weight.cpu()
            for name, weight in tensors.items()
            if name != "age"
        }


def _bargain(gram: Tensor) -> Tensor:
    """Solve G w = 1 / w for w > 0: the lowest point of w G w / 2 - sum log w."""
    # On cosines, as the scale of a task's gradient only divides its weight.
    norms = gram.diagonal().sqrt()
    per_norm = torch.where(norms > 0, 1 / norms, 0)  # a gradient of 0 has no part in it
    cosines = per_norm.unsqueeze(1) * gram * per_norm
    # Where the gradients cancel out there is no lowest point, so the cosines are made definite,
    # by more than what fp32 leaves of the inner products of long vectors.
    values, vectors = torch.linalg.eigh(cosines)
    cosines = (vectors * values.clamp(min=1e-6)) @ vectors.T
    weights = cosines.diagonal().rsqrt()
    for _ in range(200):
        slope = cosines @ weights - 1 / weights
        curve = cosines + (weights**-2).diag()
        step = torch.linalg.solve(curve, slope)
        decrement = float((slope @ step).clamp(min=0).sqrt())
        # So short a step keeps every weight above 0 (the function is self-concordant).
        weights = weights - step / (1 + decrement if decrement > 0.25 else 1)
        if decrement < 1e-9:
            break
    bargained: Tensor = weights * per_norm
    return bargained
