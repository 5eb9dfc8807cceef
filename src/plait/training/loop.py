"""The loop of one stage: a generator that yields one record per update.

It takes parts and callbacks, keeps its place in a TrainState, and knows no disk and no
console. Whoever consumes the records logs, saves and stops.

Every random choice follows from the seed and the place alone: the order of a task's
examples from (task, pass), the schedule's draws from (epoch), dropout from (update). So a
loop started from a saved place goes on exactly as one that never stopped.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import torch

from plait.errors import suggest
from plait.methods.schedules import Size
from plait.training.optimizer import rate_factor, set_rate
from plait.training.team import ALONE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from plait.config import StageConfig
    from plait.data import Parcel
    from plait.inference.scoring import Scores
    from plait.methods.schedules import Schedule, Turn
    from plait.training.step import Step, StepResult
    from plait.training.team import Team
    from plait.types import Batch


@dataclass(slots=True)
class Cursor:
    """Where a task is in its data: which pass, and how many batches of it are used up."""

    passes: int = 0
    batches: int = 0


@dataclass(slots=True)
class TrainState:
    """Everything about a run's place that is not a tensor; JSON and back."""

    stage: int = 0
    epoch: int = 0
    """Epochs of this stage that are over."""
    turn: int = 0
    """Turns of the schedule used up in this epoch."""
    step: int = 0
    """Updates made in this stage."""
    total_steps: int = 0
    """Updates made in all stages."""
    cursors: dict[str, Cursor] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)
    """Tasks that early stopping took out of this stage."""
    best: float | None = None
    """Best dev figure of this stage so far; what `select` names."""
    best_step: int = 0
    """Total updates at the best figure."""
    waits: dict[str, int] = field(default_factory=dict)
    """Evaluations since the last better figure, of each task and of '' for all."""
    peaks: dict[str, float] = field(default_factory=dict)
    """Best figure of this stage, of each task and of '' for all."""
    begun: list[str] = field(default_factory=list)
    """Tasks whose heads are fitted before training, not taken from another run."""
    baselines: dict[str, dict[str, float | None]] = field(default_factory=dict)
    """Dev figures of each task's baselines, by name; None for an undefined figure."""
    before: dict[str, float] = field(default_factory=dict)
    """Dev figures before the first update of tasks that another run had trained."""
    seconds: float = 0.0
    """Time spent training, over all sittings."""
    conflicts: dict[str, list[float]] = field(default_factory=dict)
    """Each pair of tasks' cosines since the last line of the log."""
    losses: dict[str, list[float]] = field(default_factory=dict)
    """Each task's losses since the last line of the log."""
    log_lines: int = 0
    """Lines of the log that belong to what is saved."""
    finished: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainState:
        """Read back what to_json wrote."""
        cursors = {task: Cursor(**cursor) for task, cursor in values["cursors"].items()}
        return cls(**{**values, "cursors": cursors})

    def next_stage(self) -> None:
        """Go to the start of the following stage."""
        self.stage += 1
        self.epoch = self.turn = self.step = 0
        self.cursors, self.stopped, self.waits, self.peaks = {}, [], {}, {}


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One update, as its consumers see it. Tensors may still be on the device."""

    stage: str
    epoch: int
    """Counted from 1."""
    step: int
    """Updates made in this stage, this one included."""
    num_steps: int
    total_steps: int
    rate: float
    num_examples: int
    result: StepResult
    scores: dict[str, Scores] = field(default_factory=dict)
    """Scores by split, where this update was followed by an evaluation."""
    ends_epoch: bool = False


@dataclass(frozen=True, slots=True)
class Passes:
    """Any number of passes over one task's examples, their order drawn from a seed."""

    num_examples: int
    batch_size: int
    seed: tuple[int, ...]
    per_turn: int = field(default=1, kw_only=True)
    """Batches that a turn takes."""

    @property
    def num_batches(self) -> int:
        """Batches of a whole pass, the last one smaller."""
        return -(-self.num_examples // self.batch_size)

    @property
    def size(self) -> Size:
        """Examples, and turns of a pass; batches that would not fill a turn are left out of it."""
        return Size(self.num_examples, self.num_batches // self.per_turn)

    def order(self, passes: int) -> np.ndarray:
        """Return the order of the examples in one pass."""
        return np.random.default_rng([*self.seed, passes]).permutation(self.num_examples)


@dataclass(frozen=True, slots=True)
class Stream(Passes):
    """One task's training batches."""

    make: Callable[..., Batch | Parcel]
    """Rows in, batch out, or what becomes one on the device."""
    draws: bool = False
    """Whether `make` is handed a generator as well, which follows from the batch's place."""

    def take(self, cursor: Cursor, order: np.ndarray) -> Batch | Parcel:
        """Return the batch a cursor points at."""
        start = cursor.batches * self.batch_size
        rows = torch.from_numpy(order[start : start + self.batch_size])
        if not self.draws:
            return self.make(rows)
        # From 1 on: a 0 at the end would not count, and give the generator of the order.
        place = [*self.seed, cursor.passes, cursor.batches + 1]
        return self.make(rows, np.random.default_rng(place))


@dataclass(frozen=True, slots=True)
class Route:
    """What one stage goes through, with nothing in it that learns."""

    name: str
    index: int
    config: StageConfig
    seed: int
    schedule: Schedule
    streams: Mapping[str, Passes]

    @property
    def sizes(self) -> dict[str, Size]:
        """How much each task has to train on."""
        return {task: stream.size for task, stream in self.streams.items()}

    def turns(self, epoch: int) -> Iterator[Turn]:
        """Yield the schedule's turns of one epoch."""
        generator = np.random.default_rng([self.seed, self.index, epoch])
        return self.schedule.epoch(self.sizes, epoch, self.config.epochs, generator)

    def find_turns(self) -> list[Turn]:
        """Return the distinct turns of the stage; ValueError if a turn is invalid."""
        found: dict[Any, None] = {}  # ordered, so that an error is reproducible
        left = self.config.max_steps or math.inf
        for epoch in range(self.config.epochs):
            turns: list[Any] = list(self.turns(epoch))  # a plugin's schedule may yield anything
            found |= dict.fromkeys(t if isinstance(t, str) else tuple(t) for t in turns)
            left -= -(-len(turns) // self.config.accumulate)
            if left <= 0:
                break
        for turn in found:
            self._check_turn(turn)
        if not found:
            raise ValueError("contains no turns")
        return list(found)

    def _check_turn(self, turn: Any) -> None:
        if isinstance(turn, str):
            raise ValueError(f"a turn is a tuple of tasks, not {turn!r}: yield ({turn!r},)")
        if not turn:
            raise ValueError("yields a turn without a task")
        for task in turn:
            if task not in self.streams:
                raise ValueError(f"a turn names {task!r}{suggest(task, self.streams)}")
        if len(set(turn)) < len(turn):
            raise ValueError(f"a turn names a task twice: {', '.join(turn)}")

    def num_steps(self) -> int:
        """Count the updates of the whole stage."""
        limit = self.config.max_steps
        total = 0
        for epoch in range(self.config.epochs):
            turns = sum(1 for _ in self.turns(epoch))
            total += -(-turns // self.config.accumulate)
            if limit is not None and total >= limit:
                return limit
        return total


@dataclass(frozen=True, slots=True)
class Stage(Route):
    """The built parts of one stage."""

    streams: Mapping[str, Stream]
    step: Step
    team: Team = ALONE


def run_stage(
    stage: Stage, state: TrainState, evaluate: Callable[[], dict[str, Scores]] | None = None
) -> Iterator[StepRecord]:
    """Train from wherever `state` is to the end of the stage, yielding a record per update.

    `state` is up to date whenever a record is yielded. A task listed in `state.stopped` is
    passed over; the stage ends early once all are.
    """
    config, num_steps = stage.config, stage.num_steps()
    feed = _Feed(stage, state)
    stage.step.num_updates = state.step
    while state.epoch < config.epochs and state.step < num_steps:
        turns, epoch = list(stage.turns(state.epoch)), state.epoch + 1
        if state.turn == 0:
            feed.start_epoch()
        for start in range(state.turn, len(turns), config.accumulate):
            # One update: its batches, its rate, its seed.
            window = turns[start : start + config.accumulate]
            taken = [batches for turn in window for batches in feed.take(turn)]
            if not taken:  # all of its tasks have stopped
                continue
            rate = rate_factor(config, state.step, num_steps)
            set_rate(stage.step.optimizer, rate)
            stage.team.seed(place_seed(stage.seed, stage.index, state.step))
            result = stage.step(taken)
            # From here on `state` is the place after it, where a resumed loop would begin.
            state.turn = start + len(window)
            state.step += 1
            state.total_steps += 1
            # Where only stopped tasks follow, no later update could end the epoch.
            ends_epoch = not any(feed.is_live(turns[i]) for i in range(state.turn, len(turns)))
            if ends_epoch:
                _end_epoch(stage, state)
            scores = {}
            if evaluate is not None and _is_due(config, state, num_steps, ends_epoch):
                scores = evaluate()
            yield StepRecord(
                stage=stage.name,
                epoch=epoch,
                step=state.step,
                num_steps=num_steps,
                total_steps=state.total_steps,
                rate=rate * config.lr,
                num_examples=sum(b.num_examples for turn in taken for b in turn.values()),
                result=result,
                scores=scores,
                ends_epoch=ends_epoch,
            )
            # Whoever had the record may have stopped tasks meanwhile.
            if len(state.stopped) == len(stage.streams):
                return
            if ends_epoch or state.step == num_steps:
                break
        else:  # what was left of the epoch belonged to tasks that have stopped
            _end_epoch(stage, state)


def seed_everything(*place: int) -> None:
    """Start the devices' random streams at a given place of the run."""
    torch.manual_seed(place_seed(*place))


def place_seed(*place: int) -> int:
    """Turn a place of the run into a seed."""
    # SeedSequence mixes the numbers, so that neighbouring places share nothing. Zeros at the
    # end would not count without the length: the run's own start is not its first update's.
    sequence = np.random.SeedSequence((len(place), *place))
    return int(sequence.generate_state(1, np.uint64)[0]) >> 1


def task_seed(task: str) -> int:
    """Turn a task's name into a number that is the same everywhere."""
    return crc32(task.encode())


class _Feed:
    """Turns of task names become turns of batches, moving the state's cursors along."""

    def __init__(self, stage: Stage, state: TrainState):
        self.stage, self.state = stage, state
        self.orders: dict[str, tuple[int, np.ndarray]] = {}
        for task in stage.streams:
            state.cursors.setdefault(task, Cursor())

    def start_epoch(self) -> None:
        """Begin a new pass over every task that does not keep its place."""
        for task, cursor in self.state.cursors.items():
            if cursor.batches and not self.stage.schedule.keeps_place(task):
                cursor.passes, cursor.batches = cursor.passes + 1, 0

    def take(self, turn: Turn) -> list[dict[str, Batch | Parcel]]:
        """Return the turn's batches by task, as many times as it takes, without stopped tasks."""
        live = [task for task in turn if task not in self.state.stopped]
        times = self.stage.streams[live[0]].per_turn if live else 0
        return [{task: self._next(task) for task in live} for _ in range(times)]

    def is_live(self, turn: Turn) -> bool:
        """Say whether a turn has a task that still trains."""
        return any(task not in self.state.stopped for task in turn)

    def _next(self, task: str) -> Batch | Parcel:
        stream, cursor = self.stage.streams[task], self.state.cursors[task]
        if cursor.batches == stream.size.batches * stream.per_turn:
            cursor.passes, cursor.batches = cursor.passes + 1, 0
        if self.orders.get(task, (-1,))[0] != cursor.passes:
            self.orders[task] = (cursor.passes, stream.order(cursor.passes))
        batch = stream.take(cursor, self.orders[task][1])
        cursor.batches += 1
        return batch


def _end_epoch(stage: Stage, state: TrainState) -> None:
    stage.step.end_epoch()
    state.epoch, state.turn = state.epoch + 1, 0


def _is_due(config: StageConfig, state: TrainState, num_steps: int, ends_epoch: bool) -> bool:
    if state.step == num_steps or state.epoch == config.epochs:
        return True
    if config.eval_every == "epoch":
        return ends_epoch
    return config.eval_every != "end" and state.step % config.eval_every == 0
