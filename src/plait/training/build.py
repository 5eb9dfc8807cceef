"""A recipe becomes parts: tasks, model, data, stages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from plait.aggregators import AGGREGATORS
from plait.data import AUGMENTATIONS, Collator, Tokenizer, find_root, load_split
from plait.errors import RecipeError, suggest
from plait.evaluate import Task, primary_metric
from plait.losses import DEFAULT_LOSSES, LOSSES
from plait.model.adapters import ADAPTERS
from plait.model.encoder import check_adapters, check_pooling, load_encoder
from plait.model.heads import HEADS
from plait.model.multitask import MultitaskModel
from plait.model.sources import find_encoder, hash_weights
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
    from plait.config import RunConfig
    from plait.data import Dataset, SplitName
    from plait.model.encoder import Encoder
    from plait.regularizers import Regularizer
    from plait.schedules import Schedule
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
    for name in config.stages:
        stage = config.stage_config(name)
        where = f"stage.{name}"
        SCHEDULES.validate(stage.schedule, f"{where}.schedule")
        AGGREGATORS.validate(stage.aggregator, f"{where}.aggregator")
        WEIGHTINGS.validate(stage.weighting, f"{where}.weighting")
        for i, table in enumerate(stage.regularizers):
            place = f"{where}.regularizers.{i}"
            try:
                REGULARIZERS.build(table, place).check(config.tasks)
            except ValueError as error:
                raise RecipeError(f"{place}: {error}") from error


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


def _named(progress: Progress, what: str) -> Callable[[int, int, int], None]:
    return lambda _, done, total: progress(what, done, total)


class _Plan(NamedTuple):
    """What of a stage is made without touching the model's memory."""

    schedule: Schedule
    aggregator: Aggregator
    weighting: Weighting
    regularizers: list[Regularizer]
    streams: dict[str, Stream]


def check_stages(parts: Parts, train: Mapping[str, Dataset]) -> None:
    """Refuse what no stage can do with the data there is, before the first one trains."""
    for index in range(len(parts.config.stages)):
        _plan_stage(parts, index, train)


def build_stage(parts: Parts, index: int, train: Mapping[str, Dataset]) -> Stage:
    """Make the parts of one stage: schedule, streams of batches, optimizer, step."""
    config, name = parts.config, parts.config.stages[index]
    settings = config.stage_config(name)
    plan = _plan_stage(parts, index, train)
    optimizer = build_optimizer(parts.model, settings)
    add_weighting(optimizer, plan.weighting, settings)
    step = Step(
        parts.model,
        {
            task: TaskParts(parts.tasks[task].loss, config.tasks[task].weight, plan.regularizers)
            for task in plan.streams
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


def _plan_stage(parts: Parts, index: int, train: Mapping[str, Dataset]) -> _Plan:
    config, name = parts.config, parts.config.stages[index]
    settings, where = config.stage_config(name), f"stage.{name}"
    names = settings.tasks or tuple(config.tasks)
    for task in names:
        if task not in train:
            raise RecipeError(f"tasks.{task}.train names no files, but {where} trains on it")
    freeze(parts.model, settings)
    plan = _Plan(
        SCHEDULES.build(settings.schedule, f"{where}.schedule"),
        AGGREGATORS.build(settings.aggregator, f"{where}.aggregator"),
        WEIGHTINGS.build(settings.weighting, f"{where}.weighting", names, parts.device),
        [
            REGULARIZERS.build(table, f"{where}.regularizers.{i}")
            for i, table in enumerate(settings.regularizers)
        ],
        {task: _stream(parts, index, task, train[task]) for task in names},
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


def plan_passes(config: RunConfig, index: int, task: str, num_examples: int) -> Passes:
    """Say how a stage goes through a task's examples."""
    stage = config.stage_config(config.stages[index])
    batch_size = config.tasks[task].batch_size or stage.batch_size
    return Passes(num_examples, batch_size, (config.seed, index, task_seed(task)))


def _stream(parts: Parts, index: int, task: str, dataset: Dataset) -> Stream:
    spec = parts.tasks[task].spec
    passes = plan_passes(parts.config, index, task, len(dataset))

    def make(rows: torch.Tensor) -> Any:
        return parts.collator(dataset, rows, spec).to(parts.device)

    return Stream(passes.num_examples, passes.batch_size, passes.seed, make)


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
