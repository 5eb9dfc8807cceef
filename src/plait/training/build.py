"""A recipe becomes parts: tasks, model, data, stages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from plait.aggregators import AGGREGATORS
from plait.data import (
    Collator,
    Tokenizer,
    build_augmentation,
    find_held_out,
    find_root,
    load_split,
    load_texts,
)
from plait.distributed import ALONE
from plait.errors import RecipeError, first_line, suggest
from plait.evaluate import Task, primary_metric
from plait.losses import DEFAULT_LOSSES, LOSSES, Loss
from plait.model.adapters import ADAPTERS
from plait.model.encoder import ARCHITECTURES, check_adapters, check_pooling, load_encoder
from plait.model.heads import HEADS
from plait.model.multitask import MultitaskModel
from plait.model.sources import find_encoder, hash_weights
from plait.pretrain import STAGE_KINDS
from plait.pretrain.meta import MetaKind
from plait.registry import load_plugins
from plait.regularizers import REGULARIZERS
from plait.schedules import SCHEDULES
from plait.training.listeners import LISTENERS
from plait.training.loop import seed_everything
from plait.training.meta import check_meta, meta_settings
from plait.weighting import WEIGHTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from plait.config import RunConfig, StageConfig
    from plait.data import Dataset, HeldOut, SplitName
    from plait.distributed import Team
    from plait.model.encoder import Encoder
    from plait.pretrain import StageKind
    from plait.training.starting import Start

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
    start: Start | None = None
    """The run it started from, if any."""
    team: Team = ALONE
    """The processes that train it."""


def build(config: RunConfig, start: Start | None = None, team: Team = ALONE) -> Parts:
    """Make everything but the data; what the recipe gets wrong comes out here.

    With a `start`, encoder, tokenizer and heads are those of a run.
    """
    check_parts(config)
    tasks = build_tasks(config)
    if start is not None:
        return _build_from(config, start, tasks, team)
    source = config.encoder
    files = find_encoder(source.source, revision=source.revision, sha256=source.sha256)
    encoder = load_encoder(
        files,
        architecture=source.architecture,
        dropout=source.dropout,
        attention_dropout=source.attention_dropout,
    )
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
        team=team,
    )


def _build_from(config: RunConfig, start: Start, tasks: dict[str, Task], team: Team) -> Parts:
    device = choose_device(config.device)
    encoder = start.build_encoder(config)
    seed_everything(config.seed)
    model = build_model(config, encoder, tasks)
    start.fill(model, config)
    tokenizer = Tokenizer.from_file(start.folder.tokenizer)
    return Parts(
        config=config,
        tasks=tasks,
        model=model.to(device),
        tokenizer=tokenizer,
        collator=build_collator(config, tokenizer),
        device=device,
        autocast=choose_precision(config.precision, device),
        encoder=start.encoder_facts,
        start=start,
        team=team,
    )


def check_parts(config: RunConfig) -> None:
    """Refuse unknown parts and settings before anything slow begins."""
    load_plugins(config.plugins)
    ARCHITECTURES.validate(config.encoder.architecture, "encoder.architecture")
    for i, table in enumerate(config.listeners):
        LISTENERS.validate(table, f"listeners.{i}")
    for name, task in config.tasks.items():
        if task.adapter is not None:
            ADAPTERS.validate(task.adapter, f"tasks.{name}.adapter")
        for i, table in enumerate(task.augment):
            build_augmentation(table, task, f"tasks.{name}.augment.{i}")
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
    _check_unlabelled(config)


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
    trained = config.stage_config(name).tasks or tuple(config.tasks)
    for task in kind.taught:
        if task not in trained:
            raise RecipeError(
                f"{where}.kind.tasks names {task!r}, which the stage does not train"
                f"{suggest(task, trained)}"
            )
    if isinstance(kind, MetaKind):
        check_meta(config, name, kind)
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


def stage_tasks(config: RunConfig, name: str) -> tuple[str, ...]:
    """Return the tasks that a stage learns from."""
    tasks = config.stage_config(name).tasks or tuple(config.tasks)
    if not build_kind(config, name).on_labels:
        return tasks
    return tuple(task for task in tasks if config.tasks[task].touch_encoder)


def find_taught(config: RunConfig, name: str) -> tuple[str, ...]:
    """Return the tasks that a stage's teacher is asked about; none where it has no teacher."""
    kind = build_kind(config, name)
    trained = config.stage_config(name).tasks or tuple(config.tasks)
    return (kind.taught or trained) if kind.teacher else ()


def _check_unlabelled(config: RunConfig) -> None:
    """Refuse files without labels where nobody answers them."""
    taught = {task for name in config.stages for task in find_taught(config, name)}
    for task, settings in config.tasks.items():
        if settings.unlabelled and task not in taught and task in config.trained_tasks:
            raise RecipeError(
                f"tasks.{task}.unlabelled names files, but no stage has a teacher that answers "
                "them; let one distil (kind = { name = 'distill', teacher = RUN })"
            )


def stage_settings(config: RunConfig, name: str) -> StageConfig:
    """Return a stage's settings, without those of [train] that its kind has no use for."""
    settings, kind = config.stage_config(name), build_kind(config, name)
    if isinstance(kind, MetaKind):
        return meta_settings(settings, kind)
    if not kind.pretrains:
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
        if head.begins and type(loss).fit is Loss.fit:
            raise RecipeError(
                f"{where}: the {task.head['name']} head begins as a regression, which its loss "
                "does not have; choose another head, such as 'linear'"
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
    return Collator(
        tokenizer.layout,
        settings.max_length,
        segments=settings.segments,
        truncate=settings.truncate,
    )


def load_data(
    config: RunConfig,
    tokenizer: Tokenizer,
    split: SplitName,
    *,
    data: str | None = None,
    tasks: Collection[str] | None = None,
    labelled: bool = True,
    progress: Progress | None = None,
) -> dict[str, Dataset]:
    """Read one split of every task that has files for it, or of those of `tasks`."""
    root = find_root(config.data, data)
    fold = config.data.deal(split)
    files = "train" if fold and split == "dev" else split
    held_out = find_held_out(config, root) if split in ("train", "unlabelled") else None
    found = {
        name: load_split(
            name,
            task,
            split,
            root=root,
            hint=config.data.hint,
            tokenizer=tokenizer,
            max_length=config.encoder.max_length,
            truncate=config.encoder.truncate,
            bad_rows=task.bad_rows or config.data.bad_rows,
            seed=config.seed,
            labelled=labelled and split != "unlabelled",
            fold=fold,
            drop_overlap=config.data.drop_overlap,
            held_out=held_out,
            progress=None if progress is None else _named(progress, f"{name} {split}"),
        )
        for name, task in config.tasks.items()
        if getattr(task, files) and (tasks is None or name in tasks)
    }
    return found if held_out is None else _hold_out(found, held_out)


def load_named_texts(
    config: RunConfig,
    tokenizer: Tokenizer,
    *,
    data: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Dataset]:
    """Read the [texts.NAME] that some stage names."""
    named = {texts for name in config.stages for texts in build_kind(config, name).texts}
    found = {
        name: load_texts(
            name,
            texts,
            root=find_root(config.data, data),
            hint=config.data.hint,
            tokenizer=tokenizer,
            max_length=config.encoder.max_length,
            truncate=config.encoder.truncate,
            seed=config.seed,
            progress=None if progress is None else _named(progress, name),
        )
        for name, texts in config.texts.items()
        if name in named
    }
    return _hold_out(found, find_held_out(config, find_root(config.data, data)))


def _hold_out(datasets: Mapping[str, Dataset], held_out: HeldOut) -> dict[str, Dataset]:
    """Let data sets say which of their texts dev or test has, for stages that pre-train."""
    return {
        name: replace(dataset, find_held_out=partial(held_out.has_texts, dataset))
        for name, dataset in datasets.items()
    }


def _named(progress: Progress, what: str) -> Callable[[int, int, int], None]:
    return lambda _, done, total: progress(what, done, total)


def choose_device(name: str) -> torch.device:
    """Turn 'auto' or a device's name into a device that is there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    told = f"device = {name!r} cannot be used here"
    try:
        device = torch.device(name)
    except RuntimeError as error:  # which lists many that plait knows nothing of
        raise RecipeError(f"{told}: it is none; choose auto, cpu, cuda or cuda:1") from error
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise RecipeError(f"{told}: {first_line(error)}; auto takes what is there") from error
    return device


def choose_precision(name: str, device: torch.device) -> torch.dtype | None:
    """Return the type to compute in where it is not fp32."""
    if name not in ("auto", "fp32", "bf16"):
        raise RecipeError(f"precision = {name!r}{suggest(name, ('auto', 'fp32', 'bf16'))}")
    if name == "auto":
        # Those that only emulate it are faster without.
        there = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        name = "bf16" if there else "fp32"
    return torch.bfloat16 if name == "bf16" else None
