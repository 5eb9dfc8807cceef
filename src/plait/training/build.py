"""A recipe becomes parts: tasks, model, data, stages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from plait.aggregators import AGGREGATORS
from plait.data import AUGMENTATIONS, Collator, Tokenizer, find_root, load_split, load_texts
from plait.errors import RecipeError, suggest
from plait.evaluate import Task, primary_metric
from plait.losses import DEFAULT_LOSSES, LOSSES
from plait.model.adapters import ADAPTERS
from plait.model.encoder import check_adapters, check_pooling, load_encoder
from plait.model.heads import HEADS
from plait.model.multitask import MultitaskModel
from plait.model.sources import find_encoder, hash_weights
from plait.pretrain import STAGE_KINDS, Material
from plait.registry import load_plugin
from plait.regularizers import REGULARIZERS
from plait.schedules import SCHEDULES
from plait.training.listeners import LISTENERS
from plait.training.loop import Passes, Stage, Stream, seed_everything, task_seed
from plait.training.optimizer import add_weighting, build_optimizer, freeze
from plait.training.step import Step, TaskParts
from plait.weighting import WEIGHTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plait.aggregators import Aggregator
    from plait.config import RunConfig, StageConfig
    from plait.data import Dataset, SplitName
    from plait.model.encoder import Encoder
    from plait.pretrain import Objective, StageKind
    from plait.regularizers import Regularizer
    from plait.schedules import Schedule
    from plait.types import Batch
    from plait.weighting import Weighting

    Progress = Callable[[str, int, int], None]
    """Called with what is read, bytes done and bytes in all."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A run, built."""

    config: RunConfig
    tasks: dict[str, Task]
    model: MultitaskModel
    tokenizer: Tokenizer
    collator: Collator
    device: torch.device
    autocast: torch.dtype | None
    encoder: dict[str, Any]
    """Where the encoder came from: origin, revision, sha256, notes."""


def build(config: RunConfig) -> Parts:
    """Make everything but the data; what the recipe gets wrong comes out here."""
    check_parts(config)
    tasks = build_tasks(config)
    source = config.encoder
    files = find_encoder(source.source, revision=source.revision, sha256=source.sha256)
    encoder = load_encoder(files, architecture=source.architecture, dropout=source.dropout)
    device = choose_device(config.device)
    seed_everything(config.seed)  # heads start from the seed
    model = build_model(config, encoder, tasks).to(device)
    tokenizer = Tokenizer.from_file(files.tokenizer)
    return Parts(
        config=config,
        tasks=tasks,
        model=model,
        tokenizer=tokenizer,
        collator=build_collator(config, tokenizer),
        device=device,
        autocast=choose_precision(config.precision, device),
        encoder={
            "origin": files.origin,
            "revision": files.revision,
            "sha256": hash_weights(files),
            "notes": encoder.notes,
        },
    )


def check_parts(config: RunConfig) -> None:
    """Refuse unknown parts and settings before anything slow begins."""
    for plugin in config.plugins:
        load_plugin(Path(plugin))
    for i, table in enumerate(config.listeners):
        LISTENERS.validate(table, f"listeners.{i}")
    for name, task in config.tasks.items():
        if task.adapter is not None:
            ADAPTERS.validate(task.adapter, f"tasks.{name}.adapter")
        for i, table in enumerate(task.augment):
            AUGMENTATIONS.validate(table, f"tasks.{name}.augment.{i}")
    for index, name in enumerate(config.stages):
        stage = config.stage_config(name)
        where = f"stage.{name}"
        _check_kind(config, index)
        SCHEDULES.validate(stage.schedule, f"{where}.schedule")
        AGGREGATORS.validate(stage.aggregator, f"{where}.aggregator")
        WEIGHTINGS.validate(stage.weighting, f"{where}.weighting")
        for i, table in enumerate(stage.regularizers):
            place = f"{where}.regularizers.{i}"
            try:
                REGULARIZERS.build(table, place).check(config.tasks)
            except ValueError as error:
                raise RecipeError(f"{place}: {error}") from error


NOT_PRETRAINING = ("schedule", "aggregator", "weighting", "regularizers", "early_stopping")
"""Settings of a stage that mean nothing where it trains on one stream of bare texts."""


def build_kind(config: RunConfig, name: str) -> StageKind:
    """Make what says what a stage trains on."""
    return STAGE_KINDS.build(config.stage_config(name).kind, f"stage.{name}.kind")


def _check_kind(config: RunConfig, index: int) -> None:
    """Refuse what a stage that pre-trains cannot be told, and one that would be for nothing."""
    name = config.stages[index]
    kind, where = build_kind(config, name), f"stage.{name}"
    for texts in kind.texts:
        if texts not in config.texts:
            raise RecipeError(
                f"{where}.kind.texts names {texts!r}, but there is no "
                f"[texts.{texts}]{suggest(texts, config.texts)}"
            )
    if not kind.pretrains:
        return
    for key in NOT_PRETRAINING:
        if key in config.stage.get(name, {}):
            raise RecipeError(f"{where}.{key}: a stage that pre-trains has no use for it")
    pretrain = [build_kind(config, other).pretrains for other in config.stages]
    if all(pretrain[index:]) and not all(pretrain):
        raise RecipeError(
            f"stages: {name!r} pre-trains after the last fine-tuning, whose best checkpoint is "
            "what a run keeps; put it before"
        )


def stage_settings(config: RunConfig, name: str) -> StageConfig:
    """Return a stage's settings; one that pre-trains has [train]'s without those of tasks."""
    settings = config.stage_config(name)
    if not build_kind(config, name).pretrains:
        return settings
    fields = type(settings).model_fields
    return settings.model_copy(update={key: fields[key].default for key in NOT_PRETRAINING})


def build_tasks(config: RunConfig) -> dict[str, Task]:
    """Make each task's loss and check that its head and metric go with it."""
    tasks = {}
    for name, task in config.tasks.items():
        where = f"tasks.{name}"
        loss = LOSSES.build(task.loss or DEFAULT_LOSSES[task.kind], f"{where}.loss", task)
        head, _ = HEADS.validate(task.head, f"{where}.head")
        if head.gives != loss.takes:
            raise RecipeError(
                f"{where}: the {task.head['name']} head gives {head.gives}, but its loss takes "
                f"{loss.takes}; set {where}.loss to one that goes with the head"
            )
        tasks[name] = Task(task, loss, primary_metric(task, task.metric))
    return tasks


def build_model(config: RunConfig, encoder: Encoder, tasks: Mapping[str, Task]) -> MultitaskModel:
    """Put a head per task on the encoder, and into it the adapters of those that have one."""
    check_pooling(encoder, config.encoder.pooling)
    if config.encoder.max_length > encoder.max_positions:
        raise RecipeError(
            f"encoder.max_length = {config.encoder.max_length}, but this encoder reads at most "
            f"{encoder.max_positions} tokens"
        )
    heads = {
        name: HEADS.build(
            config.tasks[name].head,
            f"tasks.{name}.head",
            encoder.width,
            task.loss.num_outputs,
            task.spec.inputs == "apart",
        )
        for name, task in tasks.items()
    }
    adapters = {}
    for name in tasks:  # after all heads, which start alike with and without adapters
        if (table := config.tasks[name].adapter) is not None:
            check_adapters(encoder)
            shape = (encoder.width, encoder.num_layers, encoder.num_heads)
            adapters[name] = ADAPTERS.build(table, f"tasks.{name}.adapter", *shape)
    readers = [name for name in tasks if not config.tasks[name].touch_encoder]
    return MultitaskModel(encoder, heads, config.encoder.pooling, adapters, readers)


def build_collator(config: RunConfig, tokenizer: Tokenizer) -> Collator:
    """Make what turns rows of a data set into batches."""
    settings = config.encoder
    return Collator(tokenizer.layout, settings.max_length, segments=settings.segments)


def load_data(
    config: RunConfig,
    tokenizer: Tokenizer,
    split: SplitName,
    *,
    data: str | None = None,
    tasks: Mapping[str, object] | None = None,
    labelled: bool = True,
    progress: Progress | None = None,
) -> dict[str, Dataset]:
    """Read one split of every task that has files for it."""
    root = find_root(config.data, data)
    return {
        name: load_split(
            name,
            task,
            split,
            root=root,
            hint=config.data.hint,
            tokenizer=tokenizer,
            max_length=config.encoder.max_length,
            bad_rows=task.bad_rows or config.data.bad_rows,
            seed=config.seed,
            labelled=labelled,
            progress=None if progress is None else _named(progress, f"{name} {split}"),
        )
        for name, task in config.tasks.items()
        if getattr(task, split) and (tasks is None or name in tasks)
    }


def load_named_texts(
    config: RunConfig,
    tokenizer: Tokenizer,
    *,
    data: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Dataset]:
    """Read the [texts.NAME] that some stage names."""
    named = {texts for name in config.stages for texts in build_kind(config, name).texts}
    return {
        name: load_texts(
            name,
            texts,
            root=find_root(config.data, data),
            hint=config.data.hint,
            tokenizer=tokenizer,
            max_length=config.encoder.max_length,
            seed=config.seed,
            progress=None if progress is None else _named(progress, name),
        )
        for name, texts in config.texts.items()
        if name in named
    }


def _named(progress: Progress, what: str) -> Callable[[int, int, int], None]:
    return lambda _, done, total: progress(what, done, total)


class _Plan(NamedTuple):
    """What of a stage is made without touching the model's memory."""

    schedule: Schedule
    aggregator: Aggregator
    weighting: Weighting
    regularizers: list[Regularizer]
    objectives: dict[str, Objective]
    streams: dict[str, Stream]


def check_stages(
    parts: Parts, train: Mapping[str, Dataset], texts: Mapping[str, Dataset] | None = None
) -> None:
    """Refuse what no stage can do with the data there is, before the first one trains."""
    for index in range(len(parts.config.stages)):
        _plan_stage(parts, index, train, texts or {})


def build_stage(
    parts: Parts,
    index: int,
    train: Mapping[str, Dataset],
    texts: Mapping[str, Dataset] | None = None,
    restore: Callable[[], object] | None = None,
) -> Stage:
    """Make the parts of one stage: schedule, streams of batches, optimizer, step.

    Heads that only this stage trains are put into the model; drop_heads takes them out.
    `restore` reads the model's weights back once they are in, before anything copies them.
    """
    config, name = parts.config, parts.config.stages[index]
    settings = stage_settings(config, name)
    plan = _plan_stage(parts, index, train, texts or {})
    for task, objective in plan.objectives.items():
        if objective.head is not None:
            parts.model.add_head(task, objective.head.to(parts.device))
    if restore is not None:
        restore()
    optimizer = build_optimizer(parts.model, settings)
    add_weighting(optimizer, plan.weighting, settings)
    step = Step(
        parts.model,
        {
            task: TaskParts(
                objective.loss,
                config.tasks[task].weight if task in config.tasks else 1.0,
                plan.regularizers,
            )
            for task, objective in plan.objectives.items()
        },
        plan.aggregator,
        optimizer,
        weighting=plan.weighting,
        clip=settings.clip,
        autocast=parts.autocast,
    )
    stage = Stage(
        name=name,
        index=index,
        config=settings,
        seed=config.seed,
        schedule=plan.schedule,
        streams=plan.streams,
        step=step,
    )
    for regularizer in plan.regularizers:
        regularizer.begin(parts.model, stage.num_steps())
    return stage


def drop_heads(parts: Parts) -> None:
    """Take out of the model the heads that a stage had for itself."""
    for key in list(parts.model.heads):
        if (task := key.removeprefix("task-")) not in parts.tasks:
            parts.model.drop_head(task)


def _plan_stage(
    parts: Parts, index: int, train: Mapping[str, Dataset], texts: Mapping[str, Dataset]
) -> _Plan:
    config, name = parts.config, parts.config.stages[index]
    settings, where = stage_settings(config, name), f"stage.{name}"
    for task in settings.tasks or config.tasks:
        if task not in train:
            raise RecipeError(f"tasks.{task}.train names no files, but {where} trains on it")
    objectives = _find_objectives(parts, index, train, texts)
    names = tuple(objectives)
    _freeze(parts, settings, objectives, where)
    plan = _Plan(
        SCHEDULES.build(settings.schedule, f"{where}.schedule"),
        AGGREGATORS.build(settings.aggregator, f"{where}.aggregator"),
        WEIGHTINGS.build(settings.weighting, f"{where}.weighting", names, parts.device),
        [
            REGULARIZERS.build(table, f"{where}.regularizers.{i}")
            for i, table in enumerate(settings.regularizers)
        ],
        objectives,
        {task: _stream(parts, index, task, objectives[task]) for task in names},
    )
    sizes = {task: stream.size for task, stream in plan.streams.items()}
    try:
        turns = plan.schedule.epoch(sizes, 0, settings.epochs, np.random.default_rng(0))
        most = max(map(len, turns), default=0)
    except ValueError as error:
        raise RecipeError(f"{where}.schedule: {error}") from error
    if plan.aggregator.per_task and most == 1 < len(names) and settings.accumulate == 1:
        raise RecipeError(
            f"{where}.aggregator = {settings.aggregator['name']!r} weighs the gradients of several "
            f"tasks, but each update of schedule {settings.schedule['name']!r} has one: take a "
            "round-robin with together = true, simultaneous, or accumulate above 1"
        )
    return plan


def _find_objectives(
    parts: Parts, index: int, train: Mapping[str, Dataset], texts: Mapping[str, Dataset]
) -> dict[str, Objective]:
    config, name = parts.config, parts.config.stages[index]
    kind = build_kind(config, name)
    material = Material(
        parts.model.encoder,
        parts.tokenizer,
        parts.collator,
        {task: parts.tasks[task] for task in config.stage_config(name).tasks or config.tasks},
        train,
        {wanted: texts[wanted] for wanted in kind.texts},
    )
    try:
        with torch.random.fork_rng(devices=[]):
            seed_everything(config.seed, index)  # heads of the stage's own start from here
            objectives = kind.objectives(material)
    except ValueError as error:
        raise RecipeError(f"stage.{name}.kind: {error}") from error
    for task, objective in objectives.items():
        if objective.head is not None and task in parts.tasks:
            raise RecipeError(
                f"tasks.{task} has the name under which stage.{name} logs its loss; "
                "call the task otherwise"
            )
    return objectives


def _freeze(
    parts: Parts, settings: StageConfig, objectives: Mapping[str, Objective], where: str
) -> None:
    """Let train what the stage trains."""
    heads = [objective.head for objective in objectives.values() if objective.head is not None]
    if not heads:
        freeze(parts.model, settings)
        return
    freeze(parts.model, settings.model_copy(update={"tasks": tuple(objectives)}))
    encoder = parts.model.encoder
    if all(head.takes == "hidden" for head in heads):  # nothing depends on the pooler
        for name, parameter in encoder.named_parameters():
            if encoder.layer_of(name) > encoder.num_layers:
                parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in encoder.parameters()):
        raise RecipeError(f"{where}: the encoder is frozen, and it is all that pre-training keeps")


def plan_passes(config: RunConfig, index: int, task: str, num_examples: int) -> Passes:
    """Say how a stage goes through a task's examples."""
    stage = config.stage_config(config.stages[index])
    own = config.tasks[task].batch_size if task in config.tasks else None
    batch_size = own or stage.batch_size
    return Passes(num_examples, batch_size, (config.seed, index, task_seed(task)))


def _stream(parts: Parts, index: int, task: str, objective: Objective) -> Stream:
    passes = plan_passes(parts.config, index, task, objective.num_examples)

    def make(*rows: Any) -> Batch:
        return objective.make(*rows).to(parts.device)

    return Stream(passes.num_examples, passes.batch_size, passes.seed, make, objective.draws)


def choose_device(name: str) -> torch.device:
    """Turn 'auto' or a device's name into a device that is there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise RecipeError(f"device = {name!r} cannot be used here: {reason}") from error
    return device


def choose_precision(name: str, device: torch.device) -> torch.dtype | None:
    """Return the type to compute in where it is not fp32."""
    if name not in ("auto", "fp32", "bf16"):
        raise RecipeError(f"precision = {name!r}{suggest(name, ('auto', 'fp32', 'bf16'))}")
    if name == "auto":
        name = "bf16" if device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    return torch.bfloat16 if name == "bf16" else None
