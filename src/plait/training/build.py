"""A recipe becomes parts: tasks, model, data, stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from plait.data import (
    Collator,
    Tokenizer,
    build_augmentation,
    find_held_out,
    find_root,
    load_texts,
)
from plait.data.loading import hold_out, name_progress
from plait.errors import RecipeError, suggest
from plait.inference.build import (
    build_collator,
    build_model,
    build_tasks,
    choose_device,
    choose_precision,
)
from plait.inference.scoring import Task
from plait.methods.aggregators import AGGREGATORS
from plait.methods.regularizers import REGULARIZERS
from plait.methods.schedules import SCHEDULES
from plait.methods.weighting import WEIGHTINGS
from plait.model.adapters import ADAPTERS
from plait.model.encoder import ARCHITECTURES, load_encoder
from plait.model.multitask import MultitaskModel
from plait.model.sources import find_encoder, hash_weights
from plait.registry import load_plugins
from plait.training.listeners import LISTENERS
from plait.training.loop import seed_everything
from plait.training.meta import check_meta, meta_settings
from plait.training.stages import STAGE_KINDS
from plait.training.stages.meta import MetaKind
from plait.training.team import ALONE

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.config import RunConfig, StageConfig
    from plait.data import Dataset
    from plait.training.stages import StageKind
    from plait.training.starting import Start
    from plait.training.team import Team

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
            progress=None if progress is None else name_progress(progress, name),
        )
        for name, texts in config.texts.items()
        if name in named
    }
    return hold_out(found, find_held_out(config, find_root(config.data, data)))
