"""SMART as a public code runs it: noise of size 1 in every word."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.methods.regularizers.base import REGULARIZERS
from plait.methods.regularizers.divergences import mean_distances
from plait.methods.regularizers.perturbation import Perturbing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from plait.methods.losses import Loss
    from plait.model.multitask import Group, MultitaskModel


@REGULARIZERS.register("smart-unit")
@dataclass(kw_only=True)
class SMARTUnit(Perturbing):
    """SMART with noise of size 1, as the code has it that the systems with SMART ran.

    After Jiang et al. 2020, https://arxiv.org/abs/1911.03437, but for what becomes of the
    perturbation: noise of size `sigma` moves by `step_size` along the gradient of the distance
    and is then divided by its largest entry (plus `epsilon`, against division by 0), word by
    word. So every word's perturbation has size 1 and points nearly where the noise happened to:
    a strong, almost random disturbance rather than the worst one of a tiny ball. What it
    disturbs is the output of the embedding layer, after positions, segments and LayerNorm,
    whose entries are of that size; the word embeddings themselves are far smaller, and such
    noise on them would leave nothing of the words.

    `weight` and `variant` as in smart, `inner_steps` times the above. The outputs of the
    training pass are the reference and the other passes draw their own dropout, as there; so
    it lives in the run's precision, bf16 included. Cost, in passes: 2.7 times a plain step.

    Departures from that code: padding gets no noise; positions and LayerNorm are not applied
    a second time, as in its example; the term is the mean over the examples (it sums symmetric
    KL over the batch, so that its weight grows with the batch), and symmetric KL has its whole
    gradient (it holds one side of each half constant). The inner gradient is each example's own,
    whatever the size of the batch.
    """

    sizes = ("epsilon", "sigma", "step_size")

    epsilon: float = 1e-6
    step_size: float = 1e-3

    def terms(
        self,
        model: MultitaskModel,
        group: Group,
        outputs: Sequence[Tensor],
        losses: Sequence[Loss],
    ) -> list[Tensor]:
        """Return the mean distances between the outputs and those of the disturbed inputs."""
        change = self.perturb(model, group, [out.detach() for out in outputs], losses)
        moved = self.disturbed(model, group, change)
        return mean_distances(self.variant, losses, outputs, moved)

    def disturbed(self, model: MultitaskModel, group: Group, change: Tensor) -> list[Tensor]:
        """Change what the first layer is given."""
        outputs: list[Tensor] = model(group, group.tokens, shift=change)
        return outputs

    def move(self, change: Tensor, gradient: Tensor) -> Tensor:
        """Go `step_size` along the gradient, then make every word's largest entry 1."""
        step = change + self.step_size * gradient
        return step / (step.abs().amax(dim=-1, keepdim=True) + self.epsilon)
