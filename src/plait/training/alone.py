"""A recipe of several tasks becomes one recipe per task: what each would learn by itself.

A task alone gets the budget it has in the joint run, stage by stage: as many of its batches
(exactly those that the plan counts), in updates of as many batches as the stage accumulates,
with dev scored as often. So a difference between the two is not one of training time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.config import RunConfig
from plait.config.choose import complete, find_facts, is_whole
from plait.errors import RecipeError
from plait.training.amounts import Amounts
from plait.training.counting import count_run
from plait.training.holding import holds_out
from plait.training.plan import Plan
from plait.training.starting import find_width

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.training.counting import StageCounts


@dataclass(frozen=True, slots=True)
class Alone:
    """One task's own recipe, and what it may spend."""

    config: RunConfig
    batches: int
    """Of the task, in the joint run."""
    updates: int
    """That the same batches make when they come alone."""
    pretraining: int = 0
    """Updates of stages that pre-train before, where they are counted."""


def plan_alone(config: RunConfig, rows: Mapping[str, int] | Amounts) -> dict[str, Alone]:
    """Make a recipe for each task that the joint run trains, given their training rows.

    Settings stay as they are, early stopping among them, save for what only makes sense between
    tasks: the schedule becomes `sequential`, the aggregator `sum`, the weighting `fixed`, and
    regularizers keep this task's weight alone. Stages without the task are left out. Where a
    stage accumulates, its last update may take up to `accumulate - 1` batches more.

    A stage that pre-trains does so on the task's own texts, in as many passes as the joint run
    makes over all of them; [texts.NAME], which are no task's, are there in full. What dev or test
    of any task keeps out of the joint run's training is kept out of each one's.
    """
    amounts = rows if isinstance(rows, Amounts) else Amounts(rows)
    if not is_whole(config):
        facts = find_facts(config, amounts.rows, amounts.train)
        config, _ = complete(config, facts, find_width(config))
    plan = Plan.build(config)
    counts = count_run(plan, amounts)
    for stage in plan.stages:
        if stage.kind.is_meta:
            raise RecipeError(
                f"{stage.where} learns from several tasks ({stage.kind_name}), so tasks cannot be "
                "trained separately; remove it with -o 'stages=[...]' to train each task alone"
            )
    alone = {}
    for task in config.tasks:
        stages = {
            stage.name: stage
            for stage in counts.stages
            if task in stage.tasks and stage.tasks[task].batches_taken
        }
        if not stages:
            continue
        last = max(config.stages.index(name) for name in stages)
        # Behind its last fine-tuning a task has no use for what others are pre-trained for.
        before = [name for name in config.stages[:last] if name in counts.pretraining]
        texts = {name: _pretrain(plan, name, task, amounts) for name in before}
        own = {name: settings for name, settings in texts.items() if settings is not None}
        alone[task] = _restrict(config, task, stages, own, amounts)
    return alone


def _pretrain(plan: Plan, name: str, task: str, amounts: Amounts) -> dict[str, Any] | None:
    """Return the settings of a pre-training stage for one task; None where it has no text."""
    config, stage = plan.recipe, next(stage for stage in plan.stages if stage.name == name)
    settings, kind = stage.settings, stage.kind
    table = dict(settings.kind)
    if task not in stage.tasks:
        if not kind.texts:
            return None
        table["from_tasks"] = False
    own = {**config.stage.get(name, {}), "kind": table, "tasks": (task,)}
    try:
        changed = Plan.build(config.model_copy(update={"stage": {**config.stage, name: own}}))
        found = amounts.examples(changed.stages[stage.index], plan.tasks)
    except RecipeError:  # a task of single texts has no pairs
        return None
    whole = amounts.examples(stage, plan.tasks)
    if found is None or whole is None:  # a kind that does not say what it counts
        return own
    if sum(found[0].values()) < 2:
        return None
    if settings.max_steps is not None:
        # Streams of tasks take turns; a stream of all texts has more of a task with more of them.
        counts = [len(one) if kind.on_labels else sum(one.values()) for one, _ in (found, whole)]
        own["max_steps"] = max(1, round(settings.max_steps * counts[0] / counts[1]))
    return own


def _restrict(
    config: RunConfig,
    task: str,
    stages: Mapping[str, StageCounts],
    pretraining: Mapping[str, dict[str, Any]],
    amounts: Amounts,
) -> Alone:
    table = config.model_dump()
    table["name"] = f"{config.name}-{task}"
    table["tasks"] = {task: table["tasks"][task]}
    if table["start"] is not None:
        table["start"]["keep"] = False
    table["stages"] = tuple(n for n in config.stages if n in stages or n in pretraining)
    between: dict[str, Any] = {
        "schedule": {"name": "sequential"},
        "aggregator": {"name": "sum"},
        "weighting": {"name": "fixed"},
    }
    table["train"] |= {**between, "tasks": None}
    table["stage"] = dict(pretraining)
    updates = 0
    for name, stage in stages.items():
        settings = config.stage_config(name)
        budget = _budget(stage, task)
        own = {k: v for k, v in config.stage.get(name, {}).items() if k not in between}
        kept = (_only(part, task, config) for part in settings.regularizers)
        table["stage"][name] = {
            **own,
            "tasks": (task,),
            "regularizers": tuple(part for part in kept if part is not None),
            **budget,
            "eval_every": _spread(stage, settings.eval_every, budget["max_steps"]),
        }
        if "kind" in own:
            table["stage"][name]["kind"] = _teach(own["kind"], task)
        updates += budget["max_steps"]
    taken = sum(stage.tasks[task].batches_taken for stage in stages.values())
    alone = RunConfig.model_validate(table)
    own_plan = Plan.build(alone)
    if holds_out(own_plan):
        others = {name: other for name, other in config.tasks.items() if name != task}
        alone = alone.model_copy(update={"held_out": others | config.held_out})
    before = count_run(own_plan, amounts).updates - updates if pretraining else 0
    return Alone(alone, taken, updates, before)


def _teach(kind: dict[str, Any] | str, task: str) -> dict[str, Any] | str:
    """Leave of the tasks that a teacher is asked about this one; plain fine-tuning for others."""
    taught = kind.get("tasks") if isinstance(kind, dict) else None
    if not isinstance(kind, dict) or not taught:
        return kind
    return {**kind, "tasks": (task,)} if task in taught else {"name": "finetune"}


def _budget(stage: StageCounts, task: str) -> dict[str, int]:
    """Return the epochs and updates in which a task's batches of a stage come alone."""
    counts = stage.tasks[task]
    # An epoch of the task alone is one pass, whose last update may be of fewer batches.
    whole, rest = divmod(counts.batches_taken, counts.batches)
    updates = whole * -(-counts.batches // stage.accumulate) + -(-rest // stage.accumulate)
    return {"epochs": whole + (rest > 0), "max_steps": updates}


def _spread(stage: StageCounts, every: int | str, updates: int) -> int | str:
    """Return after how many updates to score dev, for as many chances to be the best model."""
    if every == "end":
        return every
    times = len(stage.epochs) if isinstance(every, str) else -(-stage.updates // every)
    return -(-updates // times)


def _only(part: dict[str, Any], task: str, config: RunConfig) -> dict[str, Any] | None:
    """Keep of a part's tables by task this task's entry; None where it has none."""
    kept = {}
    for key, value in part.items():
        if isinstance(value, dict) and value and value.keys() <= config.tasks.keys():
            if task not in value:
                return None
            value = {task: value[task]}
        kept[key] = value
    return kept
