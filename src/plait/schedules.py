"""Schedules: which tasks each update takes its batches from.

A schedule turns the tasks' sizes and a random generator into turns. A turn names the tasks
whose batches are trained on together; most schedules name one. What an epoch is, is for
each schedule to say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from plait.errors import suggest
from plait.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
    or "truncated": every task gives as many batches as the one with the fewest.
    """

    order: tuple[str, ...] | None = None
    length: Literal["whole", "truncated"] = "whole"

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
            for _ in range(sizes[task].batches if self.length == "whole" else fewest):
                yield (task,)


@SCHEDULES.register("round-robin")
@dataclass(kw_only=True)
class RoundRobin(Schedule):
    """One batch of each task in turn.

    `length` says when an epoch ends: "full" when the longest task is through, the shorter ones
    starting over; "truncated" when the shortest is; "drop-out" when the longest is, each task
    leaving once its own data is through. `together` makes one update of the tasks of a round,
    their losses in one turn, instead of an update each.
    """

    order: tuple[str, ...] | None = None
    length: Literal["full", "truncated", "drop-out"] = "full"
    together: bool = False

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
        for round_ in range(min(batches) if self.length == "truncated" else max(batches)):
            present = tuple(
                task for task in tasks if self.length != "drop-out" or round_ < sizes[task].batches
            )
            if self.together:
                yield present
            else:
                yield from ((task,) for task in present)


@SCHEDULES.register("fixed")
@dataclass(kw_only=True)
class Fixed(Schedule):
    """Each update draws its task with a fixed probability.

    `probabilities` gives each task a share (they are scaled to add up to 1; equal unless set).
    An epoch is `steps` updates, or as many as all tasks have batches. Tasks go on
    across epochs from where they stopped, so that every example is seen equally often.
    """

    probabilities: dict[str, float] | None = None
    steps: int | None = None

    def __post_init__(self) -> None:
        shares = (self.probabilities or {"": 1.0}).values()
        if min(shares) < 0 or sum(shares) <= 0:
            raise ValueError("probabilities must not be negative, nor all 0")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps must be 1 or more, not {self.steps}")

    def epoch(
        self,
        sizes: Mapping[str, Size],
        epoch: int,  # noqa: ARG002
        num_epochs: int,  # noqa: ARG002
        generator: np.random.Generator,
    ) -> Iterator[Turn]:
        """Yield one drawn task after the other."""
        tasks = list(sizes)
        for name in self.probabilities or ():
            if name not in sizes:
                raise ValueError(f"probabilities names {name!r}{suggest(name, tasks)}")
        shares = [self.probabilities.get(t, 0.0) if self.probabilities else 1.0 for t in tasks]
        total = sum(shares)
        steps = self.steps or sum(size.batches for size in sizes.values())
        for choice in generator.choice(len(tasks), size=steps, p=[s / total for s in shares]):
            yield (tasks[choice],)

    def keeps_place(self, task: str) -> bool:  # noqa: ARG002
        """All do."""
        return True


def _in_order(order: tuple[str, ...] | None, sizes: Mapping[str, Size]) -> list[str]:
    """Return the tasks in the written order, which must name each once."""
    if order is None:
        return list(sizes)
    for name in order:
        if name not in sizes:
            raise ValueError(f"order names {name!r}{suggest(name, sizes)}")
    if sorted(order) != sorted(sizes):
        raise ValueError(f"order must name each task once: {', '.join(sizes)}")
    return list(order)
