"""Gradient Vaccine (Wang et al. 2021, Gradient Vaccine: Investigating and Improving
Multi-task Optimization in Massively Multilingual Models, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from plait.methods.aggregators.base import AGGREGATORS, Mixing, draw_orders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor


@AGGREGATORS.register("gradvac")
@dataclass(kw_only=True)
class GradVac(Mixing):
    """Turns each task's gradient towards the others until they agree as much as they usually do.

    For each task i and every other j in random order: where the cosine of g_i and g_j is below
    its target, just so much of the original g_j is added to g_i that it reaches the target;
    then the target moves by `beta` towards the cosine found. Targets start at 0, where the
    method is PCGrad; `beta = 0` keeps them there. The update is the sum. Of the paper's
    granularities this is the whole model: one cosine for all of the encoder.
    """

    capturable = True

    beta: float = 0.01

    def __post_init__(self) -> None:
        if not 0 <= self.beta <= 1:
            raise ValueError(f"beta = {self.beta} is not between 0 and 1")
        self._targets: dict[tuple[str, str], Tensor] = {}

    def mix(self, gram: Tensor, generator: torch.Generator, tasks: list[str]) -> Tensor:
        """Return what the sum of the turned gradients has of each."""
        # As in PCGrad, all of it runs on the tasks x tasks matrix of inner products: row i of `mix`
        # is what g_i, as turned so far, has of each original gradient.
        num_tasks = len(tasks)
        targets = self._find_targets(tasks, gram)
        norms = gram.diagonal().sqrt()
        eye = torch.eye(num_tasks, device=gram.device, dtype=gram.dtype)
        target = torch.stack(targets).view(num_tasks, num_tasks)
        mix = eye
        for j in draw_orders(gram, generator):  # the next j of every task i at once; row i marks it
            turned = mix @ gram  # inner products of g_i, as turned so far, with every row
            own = (turned * mix).sum(dim=1).clamp(min=0).sqrt()
            other = j @ norms
            # A gradient of 0 has no direction, and j = i is passed over.
            counts = (own * other > 0) & ((j * eye).sum(dim=1) == 0)
            safe = torch.where(counts, own * other, 1)
            cosine = ((turned * j).sum(dim=1) / safe).clamp(-1, 1)
            wanted = (target * j).sum(dim=1)
            amount = _amount(cosine, wanted) * own / torch.where(counts, other, 1)
            mix = mix + torch.where(counts & (cosine < wanted), amount, 0).unsqueeze(1) * j
            moved = torch.where(counts, self.beta * (cosine - wanted), 0)
            target = target + moved.unsqueeze(1) * j
        for kept, new in zip(targets, target.flatten().unbind(), strict=True):
            kept.copy_(new)  # in place, where a captured step finds it again
        return mix.sum(dim=0)

    def tensors(self) -> dict[str, Tensor]:
        """Return the target of every ordered pair of tasks met so far."""
        return {f"{i}/{j}": target for (i, j), target in self._targets.items() if i != j}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the targets back."""
        for name, target in tensors.items():
            first, second = name.split("/")
            self._targets[first, second] = target.clone()

    def _find_targets(self, names: list[str], like: Tensor) -> list[Tensor]:
        pairs = [(first, second) for first in names for second in names]
        for pair in pairs:
            known = self._targets.get(pair)
            self._targets[pair] = like.new_zeros(()) if known is None else known.to(like)
        return [self._targets[pair] for pair in pairs]


def _amount(cosine: Tensor, wanted: Tensor) -> Tensor:
    """Say how much of a unit vector brings another's cosine with it to the one wanted."""
    sine, wanted_sine = (1 - cosine**2).sqrt(), (1 - wanted**2).sqrt()
    # A target of 1, which two tasks have that always agreed, would ask for infinitely much.
    return (wanted * sine - cosine * wanted_sine) / wanted_sine.clamp(min=1e-3)
