"""Meta-learning: the tasks as episodes, from which a start is learnt that adapts quickly.

An episode of a task adapts the encoder and the task's head, from their start, in `inner_steps`
updates on as many batches. What then moves the start is the kind's own; training/meta.py does it.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from plait.training.stages.base import STAGE_KINDS
from plait.training.stages.finetune import Finetune


class MetaKind(Finetune):
    """What Reptile and first-order MAML share: the inner updates of an episode."""

    least_steps: ClassVar[int] = 1

    def __init__(self, inner_steps: int, inner_lr: float, inner_optimizer: str):
        if inner_steps < self.least_steps:
            raise ValueError(f"inner_steps = {inner_steps} is below {self.least_steps}")
        if inner_lr <= 0:
            raise ValueError(f"inner_lr = {inner_lr} is not above 0")
        self.inner_steps, self.inner_lr = inner_steps, inner_lr
        self.inner_optimizer = inner_optimizer


@STAGE_KINDS.register("reptile")
class Reptile(MetaKind):
    """Move the encoder towards where a few updates on each task take it (Nichol et al. 2018).

    On First-Order Meta-Learning Algorithms, Algorithm 2 (the batched version): from the shared
    weights, each task of an update makes `inner_steps` updates on a batch each; then the shared
    weights move by `outer_lr` times the mean of the differences. The stage's warm-up and decay
    act on `outer_lr`; the paper lets it fall to 0. `inner_optimizer = "adam"` is Adam without
    momentum (beta1 = 0), as in the paper's experiments.

    Departures: heads and adapters are one task's own, so they keep their adapted values and no
    start of theirs is learnt. Adam's second moment begins anew in every episode; in the authors'
    code it goes on. A task's `weight` multiplies its difference, and an aggregator may combine
    the tasks' differences as it would their gradients.
    """

    def __init__(
        self,
        *,
        inner_steps: int = 5,
        inner_lr: float = 0.02,
        inner_optimizer: Literal["sgd", "adam"] = "sgd",
        outer_lr: float = 0.5,
    ):
        super().__init__(inner_steps, inner_lr, inner_optimizer)
        if not 0 < outer_lr <= 1:
            raise ValueError(f"outer_lr = {outer_lr} is not above 0 and at most 1")
        self.outer_lr = outer_lr
        self.batches_per_turn = inner_steps


@STAGE_KINDS.register("fomaml")
class FOMAML(MetaKind):
    """Train encoder and heads to do well after a few updates on a task (Finn et al. 2017).

    Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks, in its first-order
    variant: each task of an update makes `inner_steps` updates on a batch each; the gradient of
    one further batch, taken at the adapted weights, is applied to the weights before them, the
    task's head included. It goes the way of every gradient: weighting, aggregator, clipping,
    AdamW at the stage's `lr`. With `inner_steps = 0` it is plain fine-tuning.

    Departures: the outer optimizer is AdamW. A task keeps one head, whose start is learnt with
    the encoder's; the paper's tasks all share theirs.
    """

    least_steps: ClassVar[int] = 0

    def __init__(
        self,
        *,
        inner_steps: int = 5,
        inner_lr: float = 0.02,
        inner_optimizer: Literal["sgd", "adam"] = "sgd",
    ):
        super().__init__(inner_steps, inner_lr, inner_optimizer)
        self.batches_per_turn = inner_steps + 1
