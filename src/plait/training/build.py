"""Build a plan's parts: the model, what reads its data, and each stage's step and streams."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from plait.data import Buckets, Collator, Tokenizer, find_held_out, find_root, load_texts
from plait.data.loading import hold_out, name_progress
from plait.errors import RecipeError
from plait.inference.build import build_collator, build_model, choose_device, choose_precision
from plait.inference.scoring import Task
from plait.model.encoder import load_encoder
from plait.model.multitask import MultitaskModel
from plait.model.sources import find_encoder, hash_weights
from plait.training.delivery import fit_together, make_stream
from plait.training.loop import Route, Stage, Stream, seed_everything
from plait.training.optimizer import freeze
from plait.training.plan import Plan
from plait.training.stages import Material
from plait.training.step import TaskParts
from plait.training.team import ALONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from plait.config import RunConfig, StageConfig
    from plait.data import Dataset
    from plait.methods.aggregators import Aggregator
    from plait.methods.regularizers import Regularizer
    from plait.methods.weighting import Weighting
    from plait.training.plan import StagePlan
    from plait.training.stages import Objective
    from plait.training.starting import Start
    from plait.training.team import Team

    Progress = Callable[[str, int, int], None]
    """Called with what is read, bytes done and bytes in all."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A run, built."""

    plan: Plan
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

    @property
    def config(self) -> RunConfig:
        """The recipe."""
        return self.plan.recipe

    @property
    def tasks(self) -> dict[str, Task]:
        """The recipe's tasks."""
        return self.plan.tasks


def build(plan: Plan | RunConfig, start: Start | None = None, team: Team = ALONE) -> Parts:
    """Build everything but the data and the stages.

    With a `start`, encoder, tokenizer and heads are those of a run.
    """
    plan = plan if isinstance(plan, Plan) else Plan.build(plan)
    config, tasks = plan.recipe, plan.tasks
    if start is not None:
        return _build_from(plan, start, team)
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
        plan=plan,
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


def _build_from(plan: Plan, start: Start, team: Team) -> Parts:
    config = plan.recipe
    device = choose_device(config.device)
    encoder = start.build_encoder(config)
    seed_everything(config.seed)
    model = build_model(config, encoder, plan.tasks)
    start.fill(model, config)
    tokenizer = Tokenizer.from_file(start.folder.tokenizer)
    return Parts(
        plan=plan,
        model=model.to(device),
        tokenizer=tokenizer,
        collator=build_collator(config, tokenizer),
        device=device,
        autocast=choose_precision(config.precision, device),
        encoder=start.encoder_facts,
        start=start,
        team=team,
    )


def load_named_texts(
    plan: Plan,
    tokenizer: Tokenizer,
    *,
    data: str | None = None,
    progress: Progress | None = None,
) -> dict[str, Dataset]:
    """Read the [texts.NAME] that some stage names."""
    config, named = plan.recipe, plan.texts
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


# --- stages ------------------------------------------------------------------------------


class _StageParts(NamedTuple):
    """What of a stage is made without touching the model's memory."""

    aggregator: Aggregator
    weighting: Weighting
    regularizers: list[Regularizer]
    objectives: dict[str, Objective]
    streams: dict[str, Stream]
    together: Buckets | None
    """Sizes of the tasks' batches as one, where they can go through the encoder as one."""


def check_stages(
    parts: Parts,
    train: Mapping[str, Dataset],
    texts: Mapping[str, Dataset] | None = None,
    unlabelled: Mapping[str, Dataset] | None = None,
) -> None:
    """Refuse what no stage can do with the data there is, before the first one trains."""
    for stage in parts.plan.stages:
        _build_parts(parts, stage, train, texts or {}, {}, unlabelled or {})


def build_stage(
    parts: Parts,
    index: int,
    train: Mapping[str, Dataset],
    texts: Mapping[str, Dataset] | None = None,
    restore: Callable[[], object] | None = None,
    answers: Mapping[str, Tensor] | None = None,
    unlabelled: Mapping[str, Dataset] | None = None,
) -> Stage:
    """Make the parts of one stage: schedule, streams of batches, optimizer, step.

    Heads that only this stage trains are put into the model; drop_heads takes them out.
    `restore` reads the model's weights back once they are in, before anything copies them;
    `answers` are a teacher's to the training rows, by task, the `unlabelled` ones behind.
    """
    plan = parts.plan.stages[index]
    made = _build_parts(parts, plan, train, texts or {}, answers or {}, unlabelled or {})
    for task, objective in made.objectives.items():
        if objective.head is not None:
            parts.model.add_head(task, objective.head.to(parts.device))
    if restore is not None:
        restore()
    optimizer = plan.kind.build_optimizer(parts.model, plan.settings, made.weighting)
    tasks = parts.config.tasks
    step = plan.kind.build_step(
        parts.model,
        {
            task: TaskParts(
                objective.loss, tasks[task].weight if task in tasks else 1.0, made.regularizers
            )
            for task, objective in made.objectives.items()
        },
        made.aggregator,
        optimizer,
        weighting=made.weighting,
        clip=plan.settings.clip,
        autocast=parts.autocast,
        team=parts.team,
        graphs=parts.config.graphs and not plan.kind.is_meta,
        together=made.together,
        average=plan.settings.average,
    )
    stage = Stage(
        name=plan.name,
        index=index,
        config=plan.settings,
        seed=plan.seed,
        schedule=plan.schedule,
        streams=made.streams,
        step=step,
        team=parts.team,
    )
    for regularizer in made.regularizers:
        regularizer.moves_between = plan.kind.is_meta
        regularizer.begin(parts.model, stage.num_steps())
    return stage


def drop_heads(parts: Parts) -> None:
    """Take out of the model the heads that a stage had for itself."""
    for task in stage_heads(parts):
        parts.model.drop_head(task)


def stage_heads(parts: Parts) -> list[str]:
    """Return the names of the heads that the stage at hand has for itself."""
    names = [key.removeprefix("task-") for key in parts.model.heads]
    return [name for name in names if name not in parts.tasks]


def _build_parts(
    parts: Parts,
    plan: StagePlan,
    train: Mapping[str, Dataset],
    texts: Mapping[str, Dataset],
    answers: Mapping[str, Tensor],
    unlabelled: Mapping[str, Dataset],
) -> _StageParts:
    for task in plan.tasks:
        if task not in train:
            raise RecipeError(f"tasks.{task}.train names no files, but {plan.where} trains on it")
    objectives = _find_objectives(parts, plan, train, texts, answers, unlabelled)
    _freeze(parts, plan.settings, objectives, plan.where)
    passes = {task: plan.passes(task, one.num_examples) for task, one in objectives.items()}
    route = plan.route(passes)
    most = max(map(len, route.find_turns()))
    made = _StageParts(
        plan.aggregator.build(),
        plan.weighting.build(tuple(objectives), parts.device),
        [part.build() for part in plan.regularizers],
        objectives,
        {task: make_stream(parts, passes[task], one) for task, one in objectives.items()},
        fit_together(parts, objectives, passes) if most > 1 else None,
    )
    _check_comparing(made, route, plan.where)
    return made


def _check_comparing(made: _StageParts, route: Route, where: str) -> None:
    """Raise RecipeError if a part compares tasks but each update has one task."""
    settings = route.config
    if made.aggregator.per_task:
        part = f"aggregator = {settings.aggregator['name']!r} weighs the gradients"
    elif made.weighting.compares:
        part = f"weighting = {settings.weighting['name']!r} compares the losses"
    else:
        return
    if len(made.objectives) > 1 and not _mixes(route):
        raise RecipeError(
            f"{where}.{part} of several tasks, but each update of schedule "
            f"{settings.schedule['name']!r} has only one task: use a round-robin with "
            "together = true, "
            "simultaneous, or a schedule that mixes tasks with accumulate above 1"
        )


def _mixes(route: Route) -> bool:
    """Say whether any update of a stage takes batches of two tasks."""
    for epoch in range(route.config.epochs):
        turns = route.turns(epoch)
        while window := list(islice(turns, route.config.accumulate)):
            if len({task for turn in window for task in turn}) > 1:
                return True
    return False


def _find_objectives(
    parts: Parts,
    plan: StagePlan,
    train: Mapping[str, Dataset],
    texts: Mapping[str, Dataset],
    answers: Mapping[str, Tensor],
    unlabelled: Mapping[str, Dataset],
) -> dict[str, Objective]:
    kind = plan.kind
    tasks = {task: parts.tasks[task] for task in plan.learned}
    for task, own in tasks.items():
        labels = train[task].labels
        assert labels is not None, f"{task} is unlabelled"
        own.loss.begin(labels, parts.device)
    material = Material(
        parts.model.encoder,
        parts.tokenizer,
        parts.collator,
        tasks,
        train,
        {wanted: texts[wanted] for wanted in kind.texts},
        answers,
        unlabelled,
    )
    try:
        with torch.random.fork_rng(devices=[]):
            seed_everything(plan.seed, plan.index)  # heads of the stage's own start from here
            objectives = kind.objectives(material)
    except ValueError as error:
        raise RecipeError(f"{plan.where}.kind: {error}") from error
    for task, objective in objectives.items():
        if objective.head is not None and task in parts.tasks:
            raise RecipeError(
                f"tasks.{task} has the same name as a loss that {plan.where} logs; rename the task"
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
            if encoder.is_pooler(name):
                parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in encoder.parameters()):
        raise RecipeError(f"{where}: pre-training needs a trainable encoder, but it is frozen")
