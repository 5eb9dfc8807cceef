"""Meta-learning: the tasks as episodes, from which a start is learned that adapts quickly.

An episode is a task's turn of several batches. From the weights as they are between updates, the
encoder and the task's own parameters make an inner update on each batch (but FOMAML's last); then
the encoder goes back to where it started. What the episodes found becomes one move of the start.
Nothing but the model and the optimizer's moments is left between two updates, so that a run
resumes between them as in any other stage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch

from plait.data import Parcel
from plait.errors import RecipeError
from plait.methods.weighting import WEIGHTINGS
from plait.training.gradients import FlatGradients
from plait.training.stages.base import STAGE_KINDS
from plait.training.stages.finetune import Finetune
from plait.training.step import LossSums, Step, StepResult

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor, nn

    from plait.config import StageConfig, TaskConfig
    from plait.methods.weighting import Weighting
    from plait.model.multitask import MultitaskModel
    from plait.types import Batch

BETA, EPS = 0.999, 1e-8
"""Adam's memory of squared gradients inside an episode, and its guard against dividing by 0."""


class MetaKind(Finetune):
    """What Reptile and first-order MAML share: the inner updates of an episode."""

    least_steps: ClassVar[int] = 1
    is_meta = True

    def __init__(self, inner_steps: int, inner_lr: float, inner_optimizer: str):
        if inner_steps < self.least_steps:
            raise ValueError(f"inner_steps = {inner_steps} is below {self.least_steps}")
        if inner_lr <= 0:
            raise ValueError(f"inner_lr = {inner_lr} is not above 0")
        self.inner_steps, self.inner_lr = inner_steps, inner_lr
        self.inner_optimizer = inner_optimizer

    def check(self, where: str, given: StageConfig, tasks: Collection[TaskConfig]) -> None:
        """Refuse a frozen encoder."""
        called = given.kind["name"]
        if given.mode == "last-layer":
            raise RecipeError(
                f"{where}.mode = 'last-layer' freezes the encoder, but {called} learns the "
                "encoder's initialization; set mode = 'full-model'"
            )
        if not any(task.touch_encoder for task in tasks):
            raise RecipeError(
                f"{where}: touch_encoder is false for all its tasks, but {called} learns the "
                "encoder's initialization"
            )


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

    # Weights move by differences, not by gradients.
    unused: ClassVar[tuple[str, ...]] = (
        "lr",
        "head_lr",
        "layer_decay",
        "betas",
        "eps",
        "weight_decay",
        "weighting",
    )
    why_unused = (
        "reptile has no use for it, since weights move by differences and not by gradients; its "
        "rates are kind.inner_lr and kind.outer_lr"
    )

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

    def settings(self, given: StageConfig) -> StageConfig:
        """Return the settings with `outer_lr` as the rate."""
        return super().settings(given).model_copy(update={"lr": self.outer_lr})

    def build_optimizer(
        self,
        model: MultitaskModel,
        settings: StageConfig,  # noqa: ARG002
        weighting: Weighting,  # noqa: ARG002
    ) -> torch.optim.Optimizer:
        """Build SGD at `outer_lr`, which moves the encoder by its share of the mean difference."""
        moved = [p for p in model.shared_parameters().values() if p.requires_grad]
        return torch.optim.SGD([{"params": moved, "peak_lr": self.outer_lr}], lr=self.outer_lr)

    def build_step(self, *parts: Any, **settings: Any) -> Step:
        """Build the step that moves the start by mean differences."""
        return ReptileStep(*parts, kind=self, **settings)


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

    def check(self, where: str, given: StageConfig, tasks: Collection[TaskConfig]) -> None:
        """Refuse a weighting that compares losses before and after an update."""
        super().check(where, given, tasks)
        weighting, _ = WEIGHTINGS.validate(given.weighting, f"{where}.weighting")
        if weighting.looks_again:
            raise RecipeError(
                f"{where}.weighting = {given.weighting['name']!r} compares losses before "
                "and after an update, but fomaml's losses are of adapted weights; use another one"
            )

    def build_step(self, *parts: Any, **settings: Any) -> Step:
        """Build the step that applies the gradient at the adapted weights."""
        return FOMAMLStep(*parts, kind=self, **settings)


# --- the updates -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Episode:
    """One task's turn."""

    task: str
    batches: Sequence[Batch]
    row: int | None
    """Of the gradient, where what it finds is added up; None for a task that leaves the encoder."""
    share: float
    """Its part of the move."""


class MetaStep(Step, ABC):
    """Callable that makes one meta-update from the episodes of one or more turns."""

    def __init__(self, *args: Any, kind: MetaKind, **settings: Any):
        super().__init__(*args, **settings)
        self.kind = kind
        self.inner = FlatGradients(
            self.gradients.shared,
            {
                task: [p for p in self.model.head_parameters(task).values() if p.requires_grad]
                for task in self.tasks
            },
            num_rows=1,
        )
        """Apart from the outer gradient, which adds up over episodes."""
        self.square = torch.zeros_like(self.inner.total if self._is_adam else self.inner.total[:0])
        """Adam's second moment; of one episode, so that no checkpoint needs it."""

    def __call__(self, turns: Sequence[Mapping[str, Batch | Parcel]]) -> StepResult:
        """Make one move from the turns' episodes; each takes as many turns in a row."""
        self.gradients.clear()
        sums = LossSums()
        length = self.kind.batches_per_turn
        groups = [turns[i : i + length] for i in range(0, len(turns), length)]
        plan = replace(self._plan(turns), num_turns=len(groups))
        parts = self._num_parts([task for group in groups for task in group[0]], len(groups))
        episodes = [
            Episode(
                task,
                [self._unpack(turn[task]) for turn in group],
                plan.row(task),
                self.tasks[task].weight / parts,
            )
            for group in groups
            for task in group[0]
        ]
        start = copy_of(self.gradients.shared)
        for episode in episodes:
            self._play(episode, start, sums)
            restore(self.gradients.shared, start)
        return self._move(plan, sums)

    def _unpack(self, given: Batch | Parcel) -> Batch:
        return given.batch(self.device) if isinstance(given, Parcel) else given.to(self.device)

    @abstractmethod
    def _num_parts(self, tasks: Sequence[str], num_turns: int) -> int:
        """Return by what an episode's part of the move is divided; `tasks` has one per episode."""

    @abstractmethod
    def _play(self, episode: Episode, start: Sequence[Tensor], sums: LossSums) -> None:
        """Adapt to a task, and add to its row what is learnt from it; `start` is the encoder's."""

    def _loss(self, task: str, batch: Batch, sums: LossSums | None) -> Tensor:
        """Return a batch's loss, regularizers' terms included; `sums` hears of both."""
        with self._precision():
            loss, term = self._losses(task, batch)
        if sums is not None:
            sums.add(task, loss.detach(), None if term is None else term.detach())
        return loss if term is None else loss + term

    def _adapt(self, task: str, batches: Sequence[Batch], sums: LossSums | None) -> None:
        """Make an inner update on each batch: of the task's own parameters and the encoder."""
        self.square.zero_()
        for number, batch in enumerate(batches, 1):
            loss = self._loss(task, batch, sums)
            self.inner.total.zero_()
            self.inner.collect(task, 0 if self.model.touches_encoder(task) else None)
            loss.backward()
            self.team.reduce(self.inner.total)
            self._move_inside(task, number)

    @torch.no_grad()
    def _move_inside(self, task: str, number: int) -> None:
        """Apply the inner gradient; what it holds is then no longer the gradient."""
        total = self.inner.total
        if self.clip:
            norm = torch.linalg.vector_norm(total)
            total.mul_((self.clip / (norm + 1e-6)).clamp(max=1.0))
        if self._is_adam:
            self.square.mul_(BETA).addcmul_(total, total, value=1 - BETA)
            total.div_((self.square / (1 - BETA**number)).sqrt_().add_(EPS))
        own = self.inner.heads[task]
        moved = [*self.inner.shared, *own] if self.model.touches_encoder(task) else own
        for parameter in moved:
            assert parameter.grad is not None
            parameter.sub_(parameter.grad, alpha=self.kind.inner_lr)

    @property
    def _is_adam(self) -> bool:
        return self.kind.inner_optimizer == "adam"


class ReptileStep(MetaStep):
    """Moves the encoder towards the mean of the adapted ones; heads stay as adapted."""

    def _num_parts(self, tasks: Sequence[str], num_turns: int) -> int:  # noqa: ARG002
        return sum(map(self.model.touches_encoder, tasks)) or 1

    def _play(self, episode: Episode, start: Sequence[Tensor], sums: LossSums) -> None:
        self._adapt(episode.task, episode.batches, sums)
        self.gradients.collect(episode.task, episode.row)
        if episode.row is None:
            return
        with torch.no_grad():
            for parameter, before in zip(self.gradients.shared, start, strict=True):
                assert parameter.grad is not None
                parameter.grad.add_(before - parameter, alpha=episode.share)

    def _clip(self) -> Tensor:
        """Leave the difference as it is: `clip` is for gradients, here the inner ones."""
        norm: Tensor = torch.linalg.vector_norm(self.gradients.total)
        return norm


class FOMAMLStep(MetaStep):
    """Applies each task's gradient at its adapted weights to the weights before."""

    def _num_parts(self, tasks: Sequence[str], num_turns: int) -> int:  # noqa: ARG002
        return num_turns

    def _play(self, episode: Episode, start: Sequence[Tensor], sums: LossSums) -> None:  # noqa: ARG002
        task, (*support, query) = episode.task, episode.batches
        own = self.inner.heads[task]
        before = copy_of(own)
        self._adapt(task, support, None)
        loss = self._loss(task, query, sums)
        self.gradients.collect(task, episode.row)
        (self.weighting(task, loss) * episode.share).backward()
        restore(own, before)


def copy_of(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Keep what parameters hold."""
    return [parameter.detach().clone() for parameter in parameters]


@torch.no_grad()
def restore(parameters: Sequence[nn.Parameter], kept: Sequence[Tensor]) -> None:
    """Give parameters back what was kept."""
    for parameter, value in zip(parameters, kept, strict=True):
        parameter.copy_(value)
