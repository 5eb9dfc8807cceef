"""Bregman proximal point: outputs should stay near those of the model's own recent past."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch.func import functional_call

from plait.methods.regularizers.base import REGULARIZERS, Weighted
from plait.methods.regularizers.divergences import Variant, mean_distances
from plait.methods.regularizers.passes import clean_outputs, without_dropout

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from plait.methods.losses import Loss
    from plait.model.multitask import Group, MultitaskModel


@REGULARIZERS.register("bregman")
@dataclass(kw_only=True)
class Bregman(Weighted):
    """Momentum Bregman proximal point: stay near a running mean of the model.

    Jiang et al. 2020, https://arxiv.org/abs/1911.03437, section 3.2: the term is `weight` (mu)
    times the mean distance of the outputs under the parameters theta and under theta~, which
    follows them after every update: theta~ <- (1 - beta) theta + beta theta~, beta being
    `beta_early` for the first `early` share of the stage's updates and `beta` after. The
    gradient reaches theta alone.

    `weight` is one number or a table by task; `variant` as in smart (0, symmetric KL or for
    scores the squared difference, is the paper's).

    With `beta` and `beta_early` 0, theta~ is theta_t, the parameters after the last update: the
    plain proximal point, which systems C and D write. As one update is made for each theta_t,
    theta is still theta_t when the term is taken, and without dropout the term is 0. With
    `under_dropout` the outputs of the training pass are compared with those of a pass of theta~
    with another dropout mask, so that the term measures the effect of dropout on the outputs.

    theta~ starts as the stage's first theta and is kept for what trains: one more copy of those
    parameters on the device (0.4 GB for BERT-base) and in a checkpoint. The plain proximal point
    needs no copy: theta~ is then what the model holds, but for meta-learning, whose inner updates
    move theta away from it. Unless `under_dropout`, both passes are without dropout. They are in
    the run's precision: from the second update on a running mean is far enough away that bf16
    changes the term by 3% at most. Cost, in passes: a third of a plain step more where the
    training pass serves (`under_dropout`, or nothing drops out), else 1.3.
    """

    capturable = True

    variant: Variant = 0
    beta: float = 0.999
    beta_early: float = 0.99
    early: float = 0.1
    under_dropout: bool = False
    num_early: int = field(default=0, init=False)
    """Updates under beta_early."""
    past: dict[str, Tensor] | None = field(default=None, init=False, repr=False)
    """theta~ by the parameters' names, where it is not theta itself; None before a stage begins."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta", "beta_early", "early"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1, not {getattr(self, name)}")

    def begin(self, model: MultitaskModel, num_steps: int) -> None:
        """Take theta~ from the parameters as they are."""
        self.num_early = round(self.early * num_steps)
        follows = self.beta > 0 or (self.num_early > 0 and self.beta_early > 0)
        apart = follows or self.moves_between
        self.past = {n: p.detach().clone() for n, p in _trained(model).items()} if apart else {}

    def terms(
        self,
        model: MultitaskModel,
        group: Group,
        outputs: Sequence[Tensor],
        losses: Sequence[Loss],
    ) -> list[Tensor]:
        """Return the mean distances between the outputs under theta and under theta~."""
        if self.past is None:  # the term would be 0, silently
            raise RuntimeError("begin() was not called: there are no reference parameters")
        now = outputs
        if not self.under_dropout:
            now = clean_outputs(model, group, outputs, fp32=False)
        with torch.no_grad(), nullcontext() if self.under_dropout else without_dropout(model):
            before = (
                functional_call(model, self.past, (group, group.tokens))
                if self.past
                else model(group, group.tokens)
            )
        return mean_distances(self.variant, losses, now, before)

    @torch.no_grad()
    def after_update(self, model: MultitaskModel, step: int) -> None:
        """Let theta~ follow."""
        if not self.past:
            return
        beta = self.beta_early if step <= self.num_early else self.beta
        now = _trained(model)
        torch._foreach_lerp_(list(self.past.values()), [now[n] for n in self.past], 1 - beta)

    def tensors(self) -> dict[str, Tensor]:
        """Return theta~."""
        return dict(self.past or {})

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take theta~ back."""
        for name, kept in (self.past or {}).items():
            kept.copy_(tensors[name])


def _trained(model: MultitaskModel) -> dict[str, Tensor]:
    return {name: p for name, p in model.named_parameters() if p.requires_grad}
