"""The contract of the kinds of stage."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from plait.registry import Registry
from plait.training.optimizer import add_weighting, build_optimizer
from plait.training.step import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import torch
    from torch import Tensor

    from plait.config import StageConfig, TaskConfig
    from plait.data import Collator, Dataset, Rows, Tokenizer
    from plait.inference.scoring import Task
    from plait.methods.weighting import Weighting
    from plait.model.heads import Head
    from plait.model.interface import Encoder
    from plait.model.multitask import MultitaskModel
    from plait.types import Batch


@dataclass(frozen=True, slots=True)
class Material:
    """What a stage can be made of."""

    encoder: Encoder
    tokenizer: Tokenizer
    collator: Collator
    tasks: Mapping[str, Task]
    """The stage's."""
    train: Mapping[str, Dataset]
    """Their training rows; dev and test never come here."""
    texts: Mapping[str, Dataset]
    """The recipe's [texts.NAME] that the kind names."""
    answers: Mapping[str, Tensor] = field(default_factory=dict)
    """A teacher's to the training rows, by task: probabilities [rows, classes] or scores [rows],
    those to `unlabelled` rows behind. Empty while a recipe is only checked: batches alone may look
    at them."""
    unlabelled: Mapping[str, Dataset] = field(default_factory=dict)
    """The tasks' rows without labels; only a teacher's answers make anything of them."""


@dataclass(frozen=True, slots=True)
class Sources:
    """What of the material is read off files: enough to count a stage's examples."""

    tasks: Mapping[str, Task]
    train: Mapping[str, Dataset]
    texts: Mapping[str, Dataset]


@dataclass(frozen=True, slots=True)
class Objective:
    """One stream of batches and what is to be learnt from it."""

    num_examples: int
    make: Callable[..., Batch]
    """Row numbers (int64 tensor) in, batch out; and a numpy Generator after them if it draws."""
    loss: Callable[[Tensor, Tensor], Tensor]
    """The model's outputs and the batch's labels -> the mean loss.

    If it has a method `counts` (labels -> the number of items the loss averages over), each worker
    computes the loss on its rows; else every worker gets the outputs of all workers."""
    head: Head | None = None
    """Head of this stage, removed at its end. None for a task, whose head the model has."""
    draws: bool = False
    """Whether `make` draws at random; its generator follows from the seed and the place."""
    rows: Rows | None = None
    """What `make` collates, where it does nothing else: a GPU may then keep it and do so itself."""


class StageKind(ABC):
    """What a stage trains: objectives by name, a task's being the task's name."""

    pretrains: ClassVar[bool] = True
    """Whether it trains on texts alone: dev is not scored."""
    unused: ClassVar[tuple[str, ...]] = (
        "schedule",
        "aggregator",
        "weighting",
        "regularizers",
        "early_stopping",
    )
    """Settings of a stage that it does not use: refused where the recipe sets them for it."""
    why_unused: ClassVar[str] = "a stage that pre-trains has no use for it"
    is_meta: ClassVar[bool] = False
    """Whether it meta-learns: from several tasks, in updates that cannot be captured."""
    on_labels: ClassVar[bool] = False
    """Whether a kind that pre-trains learns from the tasks' labelled rows, those of each task in a
    stream 'KIND-TASK'; else from bare texts in one stream, called as the kind is. Tasks with
    touch_encoder = false take no part."""
    texts: tuple[str, ...] = ()
    """The [texts.NAME] it asks for."""
    teacher: str = ""
    """Folder of the run or ensemble that is the teacher."""
    unseen: bool = False
    """Whether a row is answered by those of the teacher's runs that were not trained on it."""
    calibrated: bool = False
    """Whether the teacher's answers are scaled as `plait calibrate` found."""
    taught: tuple[str, ...] = ()
    """Which of the stage's tasks the teacher is asked about; all where empty."""
    batches_per_turn: int = 1
    """Batches of each of its tasks that a turn of the schedule takes, all of one pass."""

    def settings(self, given: StageConfig) -> StageConfig:
        """Return a stage's settings, with defaults in place of those that it does not use."""
        fields = type(given).model_fields
        return given.model_copy(update={key: fields[key].default for key in self.unused})

    def check(self, where: str, given: StageConfig, tasks: Collection[TaskConfig]) -> None:  # noqa: B027
        """Raise RecipeError for settings or tasks that it cannot be used with."""

    def build_optimizer(
        self, model: MultitaskModel, settings: StageConfig, weighting: Weighting
    ) -> torch.optim.Optimizer:
        """Build the stage's optimizer."""
        optimizer = build_optimizer(model, settings)
        add_weighting(optimizer, weighting, settings)
        return optimizer

    def build_step(self, *parts: Any, **settings: Any) -> Step:
        """Build what makes an update; the arguments are those of Step."""
        return Step(*parts, **settings)

    @abstractmethod
    def objectives(self, material: Material) -> dict[str, Objective]:
        """Return what to train on; a ValueError says in a sentence why there is nothing."""

    def count(self, sources: Sources) -> int | None:  # noqa: ARG002
        """Return the examples of a pass of a kind that pre-trains; None where it cannot say."""
        return None

    def estimate(self, task: Task, rows: int) -> int:  # noqa: ARG002
        """Return how many of them at most come from so many unread training rows of a task."""
        return 0


STAGE_KINDS: Registry[StageKind] = Registry("stage-kind", "training rows -> what a stage learns")
