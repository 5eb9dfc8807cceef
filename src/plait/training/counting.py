"""A recipe and the number of rows of its tasks become what a run will do, before it does it.

The schedule's turns are gone through as the loop would, and the order of every pass is drawn
from the same seed, so that the counts are exact. Nothing is built that learns.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.errors import RecipeError
from plait.methods.schedules import SCHEDULES
from plait.training.amounts import Amounts
from plait.training.optimizer import rate_factor
from plait.training.plan import Plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.config import RunConfig, StageConfig
    from plait.methods.schedules import Turn
    from plait.training.loop import Passes, Route
    from plait.training.plan import StagePlan

MOST_SEGMENTS = 8
"""Pieces of an epoch's order that are written out."""


@dataclass(frozen=True, slots=True)
class TaskCounts:
    """What one task has, and how much of it a stage uses."""

    examples: int
    batch_size: int
    batches: int
    """Of one pass."""
    batches_taken: int
    """Over the whole stage."""
    passes: float
    """Batches taken over batches of a pass."""
    seen_least: int
    """How often the example is seen that is seen least."""
    seen_mean: float
    seen_most: int
    never_seen: int
    """Examples that the stage leaves out altogether."""


@dataclass(frozen=True, slots=True)
class EpochCounts:
    """What one epoch does; `epoch` counts from 1."""

    epoch: int
    turns: int
    updates: int
    batches: dict[str, int]
    order: str
    """The tasks of its first turns: 'a x3, (b c) x2, ...', and a+b for a turn of both."""


@dataclass(frozen=True, slots=True)
class Rates:
    """A learning rate at a stage's first update, at its highest and at the last."""

    begin: float
    peak: float
    peak_update: int
    end: float


@dataclass(frozen=True, slots=True)
class StageCounts:
    """What one stage does."""

    name: str
    kind: str
    """What it trains: the tasks (finetune, ...), or one stream of bare texts (mlm, simcse, ...)."""
    pretrains: bool
    is_exact: bool
    """Whether its examples are counted, not estimated from rows that were not read."""
    schedule: str
    about: str
    """What the schedule says of itself."""
    settings: dict[str, Any]
    """The schedule's, those left at their defaults as well."""
    accumulate: int
    batches_per_turn: int
    """Of each of the turn's tasks; more than one where the stage meta-learns."""
    updates: int
    rates: dict[str, Rates]
    """Of the encoder and of the heads, whichever train."""
    layer_decay: float
    """What each layer's rate is of that of the layer above; the encoder's is the top one's."""
    may_stop_early: bool
    tasks: dict[str, TaskCounts]
    unlabelled: dict[str, int]
    """Of the examples of tasks, those that have no label but a teacher's answer."""
    epochs: list[EpochCounts]


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run does, stage after stage."""

    name: str
    updates: int
    stages: list[StageCounts]
    pretraining: dict[str, str]
    """Stages that pre-train, with their kinds. Those that are not among `stages` are not counted:
    how many texts they have is known once those have been read."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def count_run(plan: Plan | RunConfig, rows: Mapping[str, int] | Amounts) -> Counts:
    """Count what a run does for tasks of so many training rows.

    Stages that pre-train are exact where the rows themselves were read, which alone says how many
    texts they have without doubles; from mere numbers they are estimated, as if none were double.
    """
    plan = plan if isinstance(plan, Plan) else Plan.build(plan)
    amounts = rows if isinstance(rows, Amounts) else Amounts(rows)
    pretraining = {stage.name: stage.kind_name for stage in plan.stages if stage.kind.pretrains}
    stages = []
    for stage in plan.stages:
        if not stage.kind.pretrains:
            route = _find_route(stage, amounts.stage_rows(stage))
            stages.append(_count_stage(stage, route, unlabelled=amounts.answered_rows(stage)))
        elif (found := amounts.examples(stage, plan.tasks)) is not None:
            if not any(found[0].values()):
                raise RecipeError(f"{stage.where}.kind: there is no text to train on")
            route = _make_route(stage, found[0])
            stages.append(_count_stage(stage, route, is_exact=found[1]))
    return Counts(plan.recipe.name, sum(stage.updates for stage in stages), stages, pretraining)


def _find_route(stage: StagePlan, rows: Mapping[str, int]) -> Route:
    for task in stage.tasks:
        if task not in rows:
            raise RecipeError(f"tasks.{task}.train names no files, but {stage.where} trains on it")
    return _make_route(stage, {task: rows[task] for task in stage.tasks})


def _make_route(stage: StagePlan, examples: Mapping[str, int]) -> Route:
    return stage.route({task: stage.passes(task, count) for task, count in examples.items()})


def _count_stage(
    stage: StagePlan,
    route: Route,
    *,
    is_exact: bool = True,
    unlabelled: Mapping[str, int] | None = None,
) -> StageCounts:
    config = route.config
    updates = route.num_steps()
    walks = {
        task: _Walk(passes, route.schedule.keeps_place(task))
        for task, passes in route.streams.items()
    }
    epochs: list[EpochCounts] = []
    left = updates
    while left and len(epochs) < config.epochs:
        turns = list(route.turns(len(epochs)))
        made = min(-(-len(turns) // config.accumulate), left)
        turns = turns[: made * config.accumulate]  # max_steps may cut the last epoch short
        left -= made
        counts = Counter(task for turn in turns for task in turn)
        for task, walk in walks.items():
            walk.advance(counts[task])
        batches = {task: counts[task] * walk.passes.per_turn for task, walk in walks.items()}
        epochs.append(EpochCounts(len(epochs) + 1, len(turns), made, batches, spell(turns)))
    name = config.schedule["name"]
    return StageCounts(
        name=route.name,
        kind=stage.kind_name,
        pretrains=stage.kind.pretrains,
        is_exact=is_exact,
        schedule=name,
        about=SCHEDULES.describe(name),
        settings=_settings(config),
        accumulate=config.accumulate,
        batches_per_turn=stage.kind.batches_per_turn,
        updates=updates,
        rates=_find_rates(config, updates),
        layer_decay=config.layer_decay,
        may_stop_early=config.early_stopping is not None,
        tasks={task: walk.count() for task, walk in walks.items()},
        unlabelled=dict(unlabelled or {}),
        epochs=epochs,
    )


def _settings(config: StageConfig) -> dict[str, Any]:
    table = config.schedule
    return {s.name: table.get(s.name, s.default) for s in SCHEDULES.settings(table["name"])}


def _find_rates(config: StageConfig, updates: int) -> dict[str, Rates]:
    factors = [rate_factor(config, step, updates) for step in range(updates)]
    top = max(factors)
    peaks = {"heads": config.head_lr or config.lr}
    if config.mode == "full-model":
        peaks = {"encoder": config.lr, **peaks}
    return {
        what: Rates(factors[0] * lr, top * lr, factors.index(top) + 1, factors[-1] * lr)
        for what, lr in peaks.items()
    }


class _Walk:
    """A task's way through its passes, moved along as the loop moves a cursor."""

    def __init__(self, passes: Passes, keeps_place: bool):
        self.passes, self.keeps_place = passes, keeps_place
        self.used = [0]
        """Turns used up of each pass."""

    def advance(self, turns: int) -> None:
        """Take so many turns in a new epoch."""
        whole = self.passes.size.batches
        if self.used[-1] and not self.keeps_place:
            self.used.append(0)
        while turns:
            if self.used[-1] == whole:
                self.used.append(0)
            taken = min(turns, whole - self.used[-1])
            self.used[-1] += taken
            turns -= taken

    def count(self) -> TaskCounts:
        passes, size = self.passes, self.passes.size
        length = passes.per_turn * passes.batch_size  # examples of a turn
        seen = np.zeros(passes.num_examples, dtype=np.int64)
        for number, used in enumerate(self.used):
            if used * length >= passes.num_examples:  # no need to draw the order
                seen += 1
            elif used:
                seen[passes.order(number)[: used * length]] += 1
        taken = sum(self.used) * passes.per_turn
        return TaskCounts(
            examples=size.examples,
            batch_size=passes.batch_size,
            batches=passes.num_batches,
            batches_taken=taken,
            passes=taken / passes.num_batches,
            seen_least=int(seen.min()),
            seen_mean=float(seen.mean()),
            seen_most=int(seen.max()),
            never_seen=int((seen == 0).sum()),
        )


# --- writing an order --------------------------------------------------------------------


def spell(turns: Sequence[Turn]) -> str:
    """Write turns short: runs and repeated rounds counted, and the first pieces only."""
    words = ["+".join(turn) for turn in turns]
    most = len(set(words))
    pieces: list[str] = []
    start = 0
    while start < len(words) and len(pieces) < MOST_SEGMENTS:
        length, times = _find_round(words, start, most)
        round_ = " ".join(words[start : start + length])
        shown = f"({round_})" if length > 1 else round_
        pieces.append(f"{shown} x{times}" if times > 1 else shown)
        start += length * times
    return ", ".join([*pieces, "..."] if start < len(words) else pieces)


def _find_round(words: Sequence[str], start: int, most: int) -> tuple[int, int]:
    """Return how long the round at `start` is and how often it comes; a word once if none does."""
    for length in range(1, most + 1):
        round_ = words[start : start + length]
        if len(set(round_)) < length:  # a word twice, or the end: no longer one is a round either
            break
        times = 1
        while words[start + times * length : start + (times + 1) * length] == round_:
            times += 1
        if times > 1:
            return length, times
    return 1, 1
