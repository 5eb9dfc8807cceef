"""The stages of a run become parts: schedule, streams of batches, optimizer, step."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from plait.data import Buckets, Parcel
from plait.errors import RecipeError
from plait.methods.aggregators import AGGREGATORS
from plait.methods.regularizers import REGULARIZERS
from plait.methods.schedules import SCHEDULES
from plait.methods.weighting import WEIGHTINGS
from plait.training.build import build_kind, stage_settings, stage_tasks
from plait.training.loop import Passes, Route, Stage, Stream, seed_everything, task_seed
from plait.training.meta import FOMAMLStep, MetaStep, ReptileStep, build_outer_optimizer
from plait.training.optimizer import add_weighting, build_optimizer, freeze
from plait.training.stages import Material
from plait.training.stages.meta import MetaKind, Reptile
from plait.training.step import Step, TaskParts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from plait.config import RunConfig, StageConfig
    from plait.data import Dataset, LaidOut
    from plait.methods.aggregators import Aggregator
    from plait.methods.regularizers import Regularizer
    from plait.methods.schedules import Schedule
    from plait.methods.weighting import Weighting
    from plait.training.build import Parts
    from plait.training.stages import Objective, StageKind
    from plait.training.team import Team
    from plait.types import Batch


class _Plan(NamedTuple):
    """What of a stage is made without touching the model's memory."""

    schedule: Schedule
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
    for index in range(len(parts.config.stages)):
        _plan_stage(parts, index, train, texts or {}, {}, unlabelled or {})


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
    config, name = parts.config, parts.config.stages[index]
    settings = stage_settings(config, name)
    plan = _plan_stage(parts, index, train, texts or {}, answers or {}, unlabelled or {})
    for task, objective in plan.objectives.items():
        if objective.head is not None:
            parts.model.add_head(task, objective.head.to(parts.device))
    if restore is not None:
        restore()
    step = _build_step(parts, build_kind(config, name), settings, plan)
    stage = Stage(
        name=name,
        index=index,
        config=settings,
        seed=config.seed,
        schedule=plan.schedule,
        streams=plan.streams,
        step=step,
        team=parts.team,
    )
    for regularizer in plan.regularizers:
        regularizer.moves_between = isinstance(step, MetaStep)
        regularizer.begin(parts.model, stage.num_steps())
    return stage


def _build_step(parts: Parts, kind: StageKind, settings: StageConfig, plan: _Plan) -> Step:
    config = parts.config
    optimizer: torch.optim.Optimizer
    if isinstance(kind, Reptile):
        optimizer = build_outer_optimizer(parts.model, kind)
    else:
        optimizer = build_optimizer(parts.model, settings)
        add_weighting(optimizer, plan.weighting, settings)
    make: Callable[..., Step] = Step
    if isinstance(kind, MetaKind):
        make = partial(ReptileStep if isinstance(kind, Reptile) else FOMAMLStep, kind=kind)
    return make(
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
        team=parts.team,
        graphs=config.graphs and not isinstance(kind, MetaKind),
        together=plan.together,
        average=settings.average,
    )


def drop_heads(parts: Parts) -> None:
    """Take out of the model the heads that a stage had for itself."""
    for task in stage_heads(parts):
        parts.model.drop_head(task)


def stage_heads(parts: Parts) -> list[str]:
    """Return the names of the heads that the stage at hand has for itself."""
    names = [key.removeprefix("task-") for key in parts.model.heads]
    return [name for name in names if name not in parts.tasks]


def _plan_stage(
    parts: Parts,
    index: int,
    train: Mapping[str, Dataset],
    texts: Mapping[str, Dataset],
    answers: Mapping[str, Tensor],
    unlabelled: Mapping[str, Dataset],
) -> _Plan:
    config, name = parts.config, parts.config.stages[index]
    settings, where = stage_settings(config, name), f"stage.{name}"
    for task in settings.tasks or config.tasks:
        if task not in train:
            raise RecipeError(f"tasks.{task}.train names no files, but {where} trains on it")
    objectives = _find_objectives(parts, index, train, texts, answers, unlabelled)
    names = tuple(objectives)
    _freeze(parts, settings, objectives, where)
    schedule = SCHEDULES.build(settings.schedule, f"{where}.schedule")
    passes = {
        task: plan_passes(config, index, task, objectives[task].num_examples) for task in names
    }
    route = Route(name, index, settings, config.seed, schedule, passes)
    try:
        turns = route.find_turns()
    except ValueError as error:
        raise RecipeError(f"{where}.schedule: {error}") from error
    most = max(map(len, turns))
    plan = _Plan(
        schedule,
        AGGREGATORS.build(settings.aggregator, f"{where}.aggregator"),
        WEIGHTINGS.build(settings.weighting, f"{where}.weighting", names, parts.device),
        [
            REGULARIZERS.build(table, f"{where}.regularizers.{i}")
            for i, table in enumerate(settings.regularizers)
        ],
        objectives,
        {task: _stream(parts, passes[task], objectives[task]) for task in names},
        _fit_together(parts, objectives, passes) if most > 1 else None,
    )
    _check_comparing(plan, route, where)
    return plan


def _check_comparing(plan: _Plan, route: Route, where: str) -> None:
    """Refuse parts that compare tasks where every update has but one of several."""
    settings = route.config
    if plan.aggregator.per_task:
        told = f"aggregator = {settings.aggregator['name']!r} weighs the gradients"
    elif plan.weighting.compares:
        told = f"weighting = {settings.weighting['name']!r} compares the losses"
    else:
        return
    if len(plan.objectives) > 1 and not _mixes(route):
        raise RecipeError(
            f"{where}.{told} of several tasks, but each update of schedule "
            f"{settings.schedule['name']!r} has one: take a round-robin with together = true, "
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
    index: int,
    train: Mapping[str, Dataset],
    texts: Mapping[str, Dataset],
    answers: Mapping[str, Tensor],
    unlabelled: Mapping[str, Dataset],
) -> dict[str, Objective]:
    config, name = parts.config, parts.config.stages[index]
    kind = build_kind(config, name)
    tasks = {task: parts.tasks[task] for task in stage_tasks(config, name)}
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
            if encoder.is_pooler(name):
                parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in encoder.parameters()):
        raise RecipeError(f"{where}: the encoder is frozen, and it is all that pre-training keeps")


RESIDENT_SHARE = 0.1
"""Part of a GPU's memory that one task's tokens may take to be kept there."""


def plan_passes(config: RunConfig, index: int, task: str, num_examples: int) -> Passes:
    """Say how a stage goes through a task's examples."""
    stage = config.stage_config(config.stages[index])
    own = config.tasks[task].batch_size if task in config.tasks else None
    batch_size = own or stage.batch_size
    per_turn = build_kind(config, config.stages[index]).batches_per_turn
    place = (config.seed, index, task_seed(task))
    passes = Passes(num_examples, batch_size, place, per_turn=per_turn)
    if per_turn > 1 and passes.num_batches < per_turn:
        raise RecipeError(
            f"stage.{config.stages[index]}: a turn takes {per_turn} batches, but {task} has "
            f"{passes.num_batches} of {batch_size} examples; set a smaller batch_size, or fewer "
            "kind.inner_steps"
        )
    return passes


def _fit_together(
    parts: Parts, objectives: Mapping[str, Objective], passes: Mapping[str, Passes]
) -> Buckets | None:
    """Choose sizes for batches of all tasks in one; none where they cannot be put together."""
    if parts.device.type != "cuda" or not all(map(parts.model.shares_a_pass, objectives)):
        return None
    tasks = [
        (objective.rows.lengths().numpy(), passes[task].batch_size)
        for task, objective in objectives.items()
        if objective.rows is not None
    ]
    if len(tasks) < len(objectives):
        return None
    return replace(Buckets.fit_together(tasks), most=parts.model.encoder.max_positions)


def _stream(parts: Parts, passes: Passes, objective: Objective) -> Stream:
    make: Callable[..., Batch | Parcel]
    if parts.team.size > 1:
        objective = replace(objective, make=partial(_make_share, parts.team, objective))
    if parts.device.type == "cuda":
        make = _deliver(parts, objective, passes.batch_size)
    else:
        make = partial(_count_tokens, objective)
    return Stream(
        passes.num_examples,
        passes.batch_size,
        passes.seed,
        make,
        objective.draws,
        per_turn=passes.per_turn,
    )


def _make_share(team: Team, objective: Objective, rows: Tensor, *drawn: Any) -> Batch:
    """Make this worker's share of a batch; rows of others only where what is drawn needs them."""
    if objective.rows is None:
        return team.take(objective.make(rows, *drawn))
    return replace(objective.make(rows[team.share(len(rows))]), whole=len(rows))


def _count_tokens(objective: Objective, *rows: Any) -> Batch:
    """Make a batch whose padding can be left out."""
    batch = objective.make(*rows)
    total = int(batch.tokens.mask.sum())
    return replace(batch, tokens=replace(batch.tokens, total=total))


def _deliver(parts: Parts, objective: Objective, batch_size: int) -> Callable[..., Parcel]:
    """Make parcels for a GPU, of few enough sizes that steps can be captured for each."""
    rows, most, team = objective.rows, parts.model.encoder.max_positions, parts.team
    # Of all the memory, not of what is free now: a resumed run must choose alike.
    if rows is None or rows.num_bytes > RESIDENT_SHARE * torch.cuda.mem_get_info(parts.device)[1]:
        pad_id = parts.collator.layout.pad_id
        return lambda *given: Parcel.filled(objective.make(*given), pad_id, most)
    lengths = rows.lengths().numpy()
    buckets = replace(Buckets.fit(lengths, team.counts(batch_size)[0]), most=most)
    there: list[LaidOut] = []  # laid out when the first batch is asked for

    def make(chosen: Tensor) -> Parcel:
        if not there:
            there.append(rows.lay_out(parts.device))
        num_examples, chosen = len(chosen), chosen[team.share(len(chosen))]
        own = lengths[:, chosen.numpy()]
        length, total = buckets.room(own)
        whole = num_examples if team.size > 1 else None
        unpack = partial(there[0], length=length, total=total, whole=whole)
        return Parcel((chosen,), unpack, (len(chosen), length, total), num_examples, own)

    return make
