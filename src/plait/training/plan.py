"""A recipe becomes a plan: every part checked and built once, before anything slow begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.data import build_augmentation
from plait.errors import RecipeError, suggest
from plait.inference.build import build_tasks
from plait.methods.aggregators import AGGREGATORS
from plait.methods.regularizers import REGULARIZERS
from plait.methods.schedules import SCHEDULES
from plait.methods.weighting import WEIGHTINGS
from plait.model.adapters import ADAPTERS
from plait.model.encoder import ARCHITECTURES
from plait.registry import load_plugins
from plait.training.listeners import LISTENERS
from plait.training.loop import Passes, Route, task_seed
from plait.training.stages import STAGE_KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.config import RunConfig, StageConfig
    from plait.inference.scoring import Task
    from plait.methods.aggregators import Aggregator
    from plait.methods.regularizers import Regularizer
    from plait.methods.schedules import Schedule
    from plait.methods.weighting import Weighting
    from plait.registry import Part
    from plait.training.listeners import Listener
    from plait.training.stages import StageKind


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage, with its parts. Parts with memory are built when the stage begins."""

    name: str
    index: int
    seed: int
    settings: StageConfig
    """With defaults in place of those that its kind does not use."""
    kind: StageKind
    tasks: tuple[str, ...]
    """Tasks that it trains."""
    learned: tuple[str, ...]
    """Those of them that it learns from: of a kind that pre-trains on labels, those that may
    touch the encoder."""
    schedule: Schedule
    aggregator: Part[Aggregator]
    weighting: Part[Weighting]
    regularizers: tuple[Part[Regularizer], ...]
    batch_sizes: Mapping[str, int]
    """Of the tasks that have their own."""

    @property
    def where(self) -> str:
        """The stage's table in the recipe, for errors."""
        return f"stage.{self.name}"

    @property
    def kind_name(self) -> str:
        """The name of the kind."""
        return str(self.settings.kind["name"])

    @property
    def taught(self) -> tuple[str, ...]:
        """The tasks that the stage's teacher answers; empty without a teacher."""
        return (self.kind.taught or self.tasks) if self.kind.teacher else ()

    def passes(self, task: str, num_examples: int) -> Passes:
        """Return how the stage goes through a task's examples."""
        batch_size, per_turn = self.batch_sizes.get(task), self.kind.batches_per_turn
        batch_size = batch_size or self.settings.batch_size
        place = (self.seed, self.index, task_seed(task))
        passes = Passes(num_examples, batch_size, place, per_turn=per_turn)
        if per_turn > 1 and passes.num_batches < per_turn:
            raise RecipeError(
                f"{self.where}: a turn takes {per_turn} batches, but {task} has "
                f"{passes.num_batches} of {batch_size} examples; set a smaller batch_size, or "
                "fewer kind.inner_steps"
            )
        return passes

    def route(self, passes: Mapping[str, Passes]) -> Route:
        """Return the stage's route; RecipeError for a schedule that does not suit the tasks."""
        route = Route(self.name, self.index, self.settings, self.seed, self.schedule, passes)
        try:
            route.find_turns()
        except ValueError as error:
            raise RecipeError(f"{self.where}.schedule: {error}") from error
        return route


@dataclass(frozen=True, slots=True)
class Plan:
    """A recipe, checked: all that a run does before data and weights are read."""

    recipe: RunConfig
    tasks: dict[str, Task]
    stages: tuple[StagePlan, ...]
    listeners: tuple[Part[Listener], ...]

    @classmethod
    def build(cls, recipe: RunConfig) -> Plan:
        """Check every part of a recipe; RecipeError names the key of what is wrong."""
        load_plugins(recipe.plugins)
        ARCHITECTURES.validate(recipe.encoder.architecture, "encoder.architecture")
        for name, task in recipe.tasks.items():
            if task.adapter is not None:
                ADAPTERS.validate(task.adapter, f"tasks.{name}.adapter")
            for i, table in enumerate(task.augment):
                build_augmentation(table, task, f"tasks.{name}.augment.{i}")
        listeners = tuple(
            LISTENERS.bind(table, f"listeners.{i}") for i, table in enumerate(recipe.listeners)
        )
        stages = tuple(_plan_stage(recipe, index) for index in range(len(recipe.stages)))
        plan = cls(recipe, build_tasks(recipe), stages, listeners)
        plan._check_order()
        plan._check_unlabelled()
        return plan

    @property
    def texts(self) -> set[str]:
        """The [texts.NAME] that some stage reads."""
        return {name for stage in self.stages for name in stage.kind.texts}

    def _check_order(self) -> None:
        """Refuse pre-training after the last fine-tuning, whose best checkpoint is kept."""
        pretrain = [stage.kind.pretrains for stage in self.stages]
        for index, stage in enumerate(self.stages):
            if all(pretrain[index:]) and not all(pretrain):
                raise RecipeError(
                    f"stages: {stage.name!r} pre-trains after the last fine-tuning, whose best "
                    "checkpoint is the result; move it before that stage"
                )

    def _check_unlabelled(self) -> None:
        """Refuse files without labels that no teacher answers."""
        taught = {task for stage in self.stages for task in stage.taught}
        for name, task in self.recipe.tasks.items():
            if task.unlabelled and name not in taught and name in self.recipe.trained_tasks:
                raise RecipeError(
                    f"tasks.{name}.unlabelled names files, but no stage has a teacher to predict "
                    "them; add a distillation stage (kind = { name = 'distill', teacher = RUN })"
                )


def _plan_stage(recipe: RunConfig, index: int) -> StagePlan:
    name = recipe.stages[index]
    given, where = recipe.stage_config(name), f"stage.{name}"
    kind = STAGE_KINDS.build(given.kind, f"{where}.kind")
    tasks = given.tasks or tuple(recipe.tasks)
    for texts in kind.texts:
        if texts not in recipe.texts:
            raise RecipeError(
                f"{where}.kind.texts names {texts!r}, but there is no "
                f"[texts.{texts}]{suggest(texts, recipe.texts)}"
            )
    for task in kind.taught:
        if task not in tasks:
            raise RecipeError(
                f"{where}.kind.tasks names {task!r}, which the stage does not train"
                f"{suggest(task, tasks)}"
            )
    kind.check(where, given, [recipe.tasks[task] for task in tasks])
    for key in kind.unused:
        if key in recipe.stage.get(name, {}):
            raise RecipeError(f"{where}.{key}: {kind.why_unused}")
    settings = kind.settings(given)
    return StagePlan(
        name=name,
        index=index,
        seed=recipe.seed,
        settings=settings,
        kind=kind,
        tasks=tasks,
        learned=tuple(t for t in tasks if not kind.on_labels or recipe.tasks[t].touch_encoder),
        schedule=SCHEDULES.build(settings.schedule, f"{where}.schedule"),
        aggregator=AGGREGATORS.bind(settings.aggregator, f"{where}.aggregator"),
        weighting=WEIGHTINGS.bind(settings.weighting, f"{where}.weighting"),
        regularizers=tuple(
            _bind_regularizer(recipe, table, f"{where}.regularizers.{i}")
            for i, table in enumerate(settings.regularizers)
        ),
        batch_sizes={t: n for t, task in recipe.tasks.items() if (n := task.batch_size)},
    )


def _bind_regularizer(recipe: RunConfig, table: dict[str, object], where: str) -> Part[Regularizer]:
    part = REGULARIZERS.bind(table, where)
    try:
        part.build().check(recipe.tasks)
    except ValueError as error:
        raise RecipeError(f"{where}: {error}") from error
    return part
