"""SMART: outputs should not change when the embedded words move, however, inside a tiny ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from plait.methods.regularizers.base import REGULARIZERS
from plait.methods.regularizers.divergences import mean_distances
from plait.methods.regularizers.passes import clean_outputs, in_fp32, without_dropout
from plait.methods.regularizers.perturbation import Perturbing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from plait.methods.losses import Loss
    from plait.model.multitask import Group, MultitaskModel


@REGULARIZERS.register("smart")
@dataclass(kw_only=True)
class SMART(Perturbing):
    """Smoothness-inducing adversarial regularization, as the paper has it.

    Jiang et al. 2020, https://arxiv.org/abs/1911.03437, Algorithm 1: the word embeddings x get
    noise of size `sigma`; `inner_steps` times the gradient of the distance between the outputs
    of x and of x~ is taken at x~, divided by its largest entry, and x~ moves by `eta` along it,
    held inside the ball of radius `epsilon` (largest entry) round x. The term is `weight`
    times the mean distance of the outputs at x and at the last x~.

    `weight` is one number or a table by task (lambda_s, 1 to 5 in the paper); a task not in
    the table costs nothing. `variant` says which distance: 0 as in the paper, symmetric KL or
    for scores the squared difference; 1 plain KL for all; 2 plain KL in the inner steps,
    symmetric KL in the last. Under KL a score is the chance of a yes.

    Positions, segments and LayerNorm are applied once, after the perturbation. "Its largest
    entry" is that of one input (one text, or two joined); padding gets no noise. The gradient
    of the term flows through both passes, and into the word table, with x~ - x held constant.

    All passes it compares are in fp32 and without dropout, whatever the run's precision: in
    bf16 a change of 1e-5 is lost, and under dropout it is drowned. Cost, in passes: 2.7 times
    a plain step where the training pass itself can serve as the reference (fp32, no dropout),
    else 3.7 times.
    """

    sizes = ("epsilon", "sigma", "eta")

    epsilon: float = 1e-5
    eta: float = 1e-3

    def terms(
        self,
        model: MultitaskModel,
        group: Group,
        outputs: Sequence[Tensor],
        losses: Sequence[Loss],
    ) -> list[Tensor]:
        """Return the mean distances between the outputs and those of the worst inputs near."""
        clean = clean_outputs(model, group, outputs, fp32=True)
        with without_dropout(model), in_fp32(group.tokens.ids.device):
            change = self.perturb(model, group, [out.detach() for out in clean], losses)
            moved = self.disturbed(model, group, change)
        return mean_distances(self.variant, losses, clean, moved)

    def disturbed(self, model: MultitaskModel, group: Group, change: Tensor) -> list[Tensor]:
        """Change the word embeddings."""
        words = model.encoder.word_embeddings(group.tokens.ids)
        outputs: list[Tensor] = model(group, group.tokens, words + change)
        return outputs

    def move(self, change: Tensor, gradient: Tensor) -> Tensor:
        """Go `eta` along the gradient over its largest entry, held inside the ball."""
        largest = gradient.abs().amax(dim=(1, 2), keepdim=True)
        direction = gradient / largest.clamp(min=torch.finfo(gradient.dtype).tiny)
        # With p = infinity the projection is a clamp.
        return (change + self.eta * direction).clamp(-self.epsilon, self.epsilon)
