"""Base classes of the regularizers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import torch

from plait.errors import suggest
from plait.model.multitask import Group
from plait.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor

    from plait.methods.losses import Loss
    from plait.model.multitask import MultitaskModel
    from plait.types import Batch


class Regularizer(ABC):
    """Model, batch and its outputs in, a scalar to add to the task's loss out.

    `model(task, batch.tokens, embeddings)` runs the forward pass again, on perturbed word
    embeddings where given (`model.encoder.word_embeddings(batch.tokens.ids)` are the plain ones).
    `loss` says what the outputs mean: a distribution, or a number.

    Several workers call it with a share of the batch each, and take the mean over the examples.

    The methods below it are for a regularizer that remembers something from one update to the
    next; one that does not need not have them.
    """

    capturable: ClassVar[bool] = False
    """Whether calls depend on nothing but their arguments and tensors that are changed in place,
    so that a CUDA graph can replay them, and calls for different tasks change different ones, so
    that they can run side by side. `after_update` is never captured."""
    moves_between: bool = False
    """Whether parameters move between one `after_update` and the next, as in meta-learning; who
    builds a stage says so before `begin`."""

    @abstractmethod
    def __call__(
        self, model: MultitaskModel, task: str, batch: Batch, outputs: Tensor, loss: Loss
    ) -> Tensor:
        """Return the term, multiplied by its weight.

        It leaves parameters and their `.grad` alone and asks the device for no value.
        """

    def for_all(
        self,
        model: MultitaskModel,
        group: Group,
        outputs: Sequence[Tensor],
        losses: Sequence[Loss],
    ) -> list[Tensor]:
        """Return the terms of several tasks' batches, as calling it for each would.

        One that runs the encoder can do so once for all, by `model(group, group.tokens)`.
        """
        each = zip(group.tasks, group.batches, outputs, losses, strict=True)
        return [self(model, task, batch, out, loss) for task, batch, out, loss in each]

    def check(self, tasks: Collection[str]) -> None:  # noqa: B027
        """Raise ValueError if the settings do not suit the run's tasks; called first."""

    def begin(self, model: MultitaskModel, num_steps: int) -> None:  # noqa: B027
        """Prepare for a stage of `num_steps` updates; called once, when the stage is built."""

    def after_update(self, model: MultitaskModel, step: int) -> None:  # noqa: B027
        """Called after update `step` of the stage, counted from 1."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the state for a checkpoint, by name."""
        return {}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:  # noqa: B027
        """Restore the state that `tensors` returned; called after `begin`."""


REGULARIZERS: Registry[Regularizer] = Registry(
    "regularizer", "model, batch and outputs -> a term of the loss"
)


@dataclass(kw_only=True)
class Weighted(Regularizer):
    """A regularizer with a weight: one for all tasks, or one per task.

    A task that a table of weights does not name has weight 0 and costs nothing.
    """

    weight: float | dict[str, float] = 1.0

    def __post_init__(self) -> None:
        weights = self.weight if isinstance(self.weight, dict) else {"": self.weight}
        for task, weight in weights.items():
            if weight < 0:
                raise ValueError(f"weight{f'.{task}' if task else ''} = {weight} is below 0")

    def __call__(
        self, model: MultitaskModel, task: str, batch: Batch, outputs: Tensor, loss: Loss
    ) -> Tensor:
        """Return the term times the task's weight; the term is not computed if that is 0."""
        return self.for_all(model, Group.of({task: batch}), [outputs], [loss])[0]

    def for_all(
        self,
        model: MultitaskModel,
        group: Group,
        outputs: Sequence[Tensor],
        losses: Sequence[Loss],
    ) -> list[Tensor]:
        """Return each task's term times its weight, in one go for those that have any."""
        weights = [self.weight_of(task) for task in group.tasks]
        terms = [torch.zeros((), device=out.device) for out in outputs]
        if wanted := [i for i, weight in enumerate(weights) if weight]:
            some = group.only([group.tasks[i] for i in wanted])
            own = [outputs[i] for i in wanted], [losses[i] for i in wanted]
            for i, term in zip(wanted, self.terms(model, some, *own), strict=True):
                terms[i] = term
        return [
            (term * weight).to(torch.promote_types(out.dtype, torch.float32))
            for term, weight, out in zip(terms, weights, outputs, strict=True)
        ]

    @abstractmethod
    def terms(
        self,
        model: MultitaskModel,
        group: Group,
        outputs: Sequence[Tensor],
        losses: Sequence[Loss],
    ) -> list[Tensor]:
        """Return each task's term without its weight, a mean over the examples."""

    def weight_of(self, task: str) -> float:
        """Return a task's weight."""
        return self.weight.get(task, 0.0) if isinstance(self.weight, dict) else self.weight

    def check(self, tasks: Collection[str]) -> None:
        """Raise ValueError for weights of unknown tasks."""
        for task in self.weight if isinstance(self.weight, dict) else ():
            if task not in tasks:
                raise ValueError(
                    f"weight names {task!r}, which is not a task{suggest(task, tasks)}"
                )
