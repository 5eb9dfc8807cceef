"""Schedules: which tasks each update takes its batches from.

A schedule turns the tasks' sizes and a random generator into turns. A turn names the tasks
whose batches are trained on together; most schedules name one. What an epoch is, is for
each schedule to say: some follow a written order, the others draw.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from plait.errors import suggest
from plait.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy as np

Turn = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Size:
    """How much one task has to train on."""

    examples: int
    batches: int


class Schedule(ABC):
    """Contract of the family: sizes and a generator in, task names out."""

    @abstractmethod
    def epoch(
        self,
        sizes: Mapping[str, Size],
        epoch: int,
        num_epochs: int,
        generator: np.random.Generator,
    ) -> Iterator[Turn]:
        """Yield the turns of one epoch; `epoch` counts from 0."""

    def keeps_place(self, task: str) -> bool:  # noqa: ARG002
        """Whether a task's pass over its data goes on across epochs, or starts anew in each."""
        return False


SCHEDULES: Registry[Schedule] = Registry("schedule", "task sizes and a generator -> task names")


@SCHEDULES.register("sequential")
@dataclass(kw_only=True)
class Sequential(Schedule):
    """Every batch of one task, then every batch of the next, each epoch.

    `order` names the tasks, each once (as the recipe has them unless set); `length` is "whole",
    or "truncated": every task gives as many batches as the one with the fewest. `cap` is the
    most batches a task gives in an epoch. Every epoch shuffles each task anew, so that the
    batches a short epoch leaves out are others each time.
    """

    order: tuple[str, ...] | None = None
    length: Literal["whole", "truncated"] = "whole"
    cap: int | None = None

    def __post_init__(self) -> None:
        _check_count("cap", self.cap)

    def epoch(
        self,
        sizes: Mapping[str, Size],
        epoch: int,  # noqa: ARG002
        num_epochs: int,  # noqa: ARG002
        generator: np.random.Generator,  # noqa: ARG002
    ) -> Iterator[Turn]:
        """Yield one task after the other."""
        fewest = min(size.batches for size in sizes.values())
        for task in _in_order(self.order, sizes):
            batches = sizes[task].batches if self.length == "whole" else fewest
            for _ in range(_capped(batches, self.cap)):
                yield (task,)


@SCHEDULES.register("round-robin")
@dataclass(kw_only=True)
class RoundRobin(Schedule):
    """One batch of each task in turn; an epoch lasts as long as the longest task, or the shortest.

    `length` says when an epoch ends: "full" when the longest task is through, the shorter ones
    starting over; "truncated" when the shortest is; "drop-out" when the longest is, each task
    leaving once its own data is through. `cap` ends it after that many rounds at the latest.
    `together` makes one update of the tasks of a round, their losses in one turn, instead of
    an update each. Every epoch shuffles each task anew.
    """

    order: tuple[str, ...] | None = None
    length: Literal["full", "truncated", "drop-out"] = "full"
    cap: int | None = None
    together: bool = False

    def __post_init__(self) -> None:
        _check_count("cap", self.cap)

    def epoch(
        self,
        sizes: Mapping[str, Size],
        epoch: int,  # noqa: ARG002
        num_epochs: int,  # noqa: ARG002
        generator: np.random.Generator,  # noqa: ARG002
    ) -> Iterator[Turn]:
        """Yield round after round."""
        tasks = _in_order(self.order, sizes)
        batches = [sizes[task].batches for task in tasks]
        rounds = min(batches) if self.length == "truncated" else max(batches)
        for round_ in range(_capped(rounds, self.cap)):
            present = tuple(
                task for task in tasks if self.length != "drop-out" or round_ < sizes[task].batches
            )
            if self.together:
                yield present
            else:
                yield from ((task,) for task in present)


@SCHEDULES.register("by-epoch")
@dataclass(kw_only=True)
class ByEpoch(Schedule):
    """Each epoch trains one task, in a written order.

    `order` names every task at least once and may repeat them (each once, as the recipe has
    them, unless set); epochs beyond its end start it over. An epoch is a whole pass over its
    task, or `cap` batches. A task's next epoch shuffles it anew, also where the cap cut its
    last one short.
    """

    order: tuple[str, ...] | None = None
    cap: int | None = None

    def __post_init__(self) -> None:
        _check_count("cap", self.cap)

    def epoch(
        self,
        sizes: Mapping[str, Size],
        epoch: int,
        num_epochs: int,  # noqa: ARG002
        generator: np.random.Generator,  # noqa: ARG002
    ) -> Iterator[Turn]:
        """Yield the epoch's task over and over."""
        order = tuple(sizes) if self.order is None else self.order
        _check_names("order", order, sizes)
        if missing := [task for task in sizes if task not in order]:
            raise ValueError(
                f"order leaves out {', '.join(missing)}: add it, or leave it out of the "
                "stage's tasks"
            )
        task = order[epoch % len(order)]
        for _ in range(_capped(sizes[task].batches, self.cap)):
            yield (task,)


@SCHEDULES.register("simultaneous")
@dataclass(kw_only=True)
class Simultaneous(Schedule):
    """One batch of every task in every update; an epoch is a pass over the leader.

    The losses of a turn make one update. `leader` names the task whose pass is an epoch. The
    others start over whenever they run out; between epochs, those under `restart` begin a new
    pass, and all else goes on from where it stopped.
    """

    leader: str
    restart: tuple[str, ...] = ()

    def epoch(
        self,
        sizes: Mapping[str, Size],
        epoch: int,  # noqa: ARG002
        num_epochs: int,  # noqa: ARG002
        generator: np.random.Generator,  # noqa: ARG002
    ) -> Iterator[Turn]:
        """Yield all tasks, once per batch of the leader."""
        _check_names("leader", (self.leader,), sizes)
        _check_names("restart", self.restart, sizes)
        for _ in range(sizes[self.leader].batches):
            yield tuple(sizes)

    def keeps_place(self, task: str) -> bool:
        """All but the leader and those named under `restart` do."""
        return task != self.leader and task not in self.restart


# --- drawn -------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Sampled(Schedule):
    """Base of the schedules that draw each update's task: a subclass weighs the tasks.

    An epoch is `steps` turns, or as many as all tasks have batches. Tasks go on across epochs
    from where they stopped.
    """

    steps: int | None = None

    def __post_init__(self) -> None:
        _check_count("steps", self.steps)

    @abstractmethod
    def weigh(self, sizes: Mapping[str, Size], epoch: int, num_epochs: int) -> dict[str, float]:
        """Give each task a weight, 0 or more; `epoch` counts from 0."""

    def shares(self, sizes: Mapping[str, Size], epoch: int, num_epochs: int) -> dict[str, float]:
        """Return each task's probability in an epoch."""
        weights = self.weigh(sizes, epoch, num_epochs)
        total = sum(weights.values())
        return {task: weight / total for task, weight in weights.items()}

    def epoch(
        self,
        sizes: Mapping[str, Size],
        epoch: int,
        num_epochs: int,
        generator: np.random.Generator,
    ) -> Iterator[Turn]:
        """Yield one drawn task after the other."""
        shares = self.shares(sizes, epoch, num_epochs)
        tasks = list(shares)
        steps = self.steps or sum(size.batches for size in sizes.values())
        for choice in generator.choice(len(tasks), size=steps, p=list(shares.values())):
            yield (tasks[choice],)

    def keeps_place(self, task: str) -> bool:  # noqa: ARG002
        """All do."""
        return True


@SCHEDULES.register("fixed")
@dataclass(kw_only=True)
class Fixed(Sampled):
    """Each update draws its task with a fixed probability; an epoch is `steps` of them.

    `probabilities` gives each task a share (they are scaled to add up to 1; equal unless set).
    `steps` is as many as all tasks have batches unless set. Tasks go on across epochs from
    where they stopped, so that every example of a task is seen equally often.
    """

    probabilities: dict[str, float] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = (self.probabilities or {"": 1.0}).values()
        if min(shares) < 0 or sum(shares) <= 0:
            raise ValueError("probabilities must not be negative, nor all 0")

    def weigh(
        self,
        sizes: Mapping[str, Size],
        epoch: int,  # noqa: ARG002
        num_epochs: int,  # noqa: ARG002
    ) -> dict[str, float]:
        """Take the shares as set, 0 for a task that has none."""
        if not self.probabilities:
            return dict.fromkeys(sizes, 1.0)
        _check_names("probabilities", self.probabilities, sizes)
        return {task: self.probabilities.get(task, 0.0) for task in sizes}


@dataclass(kw_only=True)
class BySize(Sampled):
    """Base of those that draw by the tasks' examples: p ~ N^alpha."""

    @abstractmethod
    def alpha(self, epoch: int, num_epochs: int) -> float:
        """Return the exponent of an epoch, counted from 0."""

    def weigh(self, sizes: Mapping[str, Size], epoch: int, num_epochs: int) -> dict[str, float]:
        """N to the power of the epoch's alpha."""
        alpha = self.alpha(epoch, num_epochs)
        # Against the largest, so that no power is too large for a float.
        largest = max(size.examples for size in sizes.values())
        return {task: (size.examples / largest) ** alpha for task, size in sizes.items()}


@SCHEDULES.register("proportional")
@dataclass(kw_only=True)
class Proportional(BySize):
    """Each update draws its task in proportion to its examples; an epoch is `steps` of them.

    p ~ N, N the number of the task's examples. `steps` is as many as all tasks have batches
    unless set; tasks go on across epochs from where they stopped.
    """

    def alpha(self, epoch: int, num_epochs: int) -> float:  # noqa: ARG002
        """Return 1."""
        return 1.0


@SCHEDULES.register("square-root")
@dataclass(kw_only=True)
class SquareRoot(BySize):
    """Each update draws its task by the root of its examples; an epoch is `steps` of them.

    p ~ N^0.5 (Stickland and Murray 2019), N the number of the task's examples: large tasks lead,
    small ones still get their turn. `steps` is as many as all tasks have batches unless set;
    tasks go on across epochs from where they stopped.
    """

    def alpha(self, epoch: int, num_epochs: int) -> float:  # noqa: ARG002
        """Return a half."""
        return 0.5


@SCHEDULES.register("annealed")
@dataclass(kw_only=True)
class Annealed(BySize):
    """Draws in proportion to examples at first, nearly evenly at last; an epoch is `steps` of them.

    p ~ N^alpha with alpha = 1 - 0.8 (e - 1) / (E - 1) in epoch e of E, counted from 1
    (Stickland and Murray 2019): from 1 down to 0.2, and 1 where there is but one epoch. `steps`
    is as many as all tasks have batches unless set; tasks go on across epochs from where they
    stopped.
    """

    def alpha(self, epoch: int, num_epochs: int) -> float:
        """Return the exponent of an epoch, which counts from 0 here."""
        return 1 - 0.8 * epoch / max(1, num_epochs - 1)


@SCHEDULES.register("temperature")
@dataclass(kw_only=True)
class Temperature(BySize):
    """Each update draws its task by any root of its examples; an epoch is `steps` of them.

    p ~ N^(1/T), T being `temperature`: 1 is proportional, 2 the square root, and the
    larger it is, the more alike the shares. `steps` is as many as all tasks have batches
    unless set; tasks go on across epochs from where they stopped.
    """

    temperature: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature <= 0:
            raise ValueError(f"temperature must be above 0, not {self.temperature:g}")

    def alpha(self, epoch: int, num_epochs: int) -> float:  # noqa: ARG002
        """Return 1/T."""
        return 1 / self.temperature


# --- shared ------------------------------------------------------------------------------


def _capped(count: int, cap: int | None) -> int:
    return count if cap is None else min(count, cap)


def _check_count(setting: str, value: int | None) -> None:
    if value is not None and value < 1:
        raise ValueError(f"{setting} must be 1 or more, not {value}")


def _check_names(setting: str, names: Iterable[str], sizes: Mapping[str, Size]) -> None:
    for name in names:
        if name not in sizes:
            said = f"{setting} names {name!r}, no task of the stage"
            raise ValueError(said + suggest(name, sizes))


def _in_order(order: tuple[str, ...] | None, sizes: Mapping[str, Size]) -> list[str]:
    """Return the tasks in the written order, which must name each once."""
    if order is None:
        return list(sizes)
    _check_names("order", order, sizes)
    if sorted(order) != sorted(sizes):
        raise ValueError(f"order must name each task once: {', '.join(sizes)}")
    return list(order)
