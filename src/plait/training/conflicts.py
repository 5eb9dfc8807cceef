"""Mean losses and gradient conflicts of the updates between two lines of the log."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from torch import Tensor

    from plait.training.loop import StepRecord
    from plait.training.step import StepResult


class ConflictSums:
    """Gradient cosines since the last `take`, kept on the device until then.

    `before` are the cosines in a checkpoint, as returned by `to_json`.
    """

    def __init__(
        self, tasks: Iterable[str], before: Mapping[str, Sequence[float]], device: torch.device
    ):
        self._order = list(tasks)
        self._cosines: dict[str, list[Tensor]] = {
            pair: list(torch.tensor(cosines, device=device)) for pair, cosines in before.items()
        }

    def add(self, result: StepResult) -> None:
        """Add the cosines of an update that has separate gradients of several tasks."""
        if result.cosines is None:
            return
        # A pair has the same name for both orders of its tasks.
        rows = sorted(enumerate(result.rows), key=lambda row: self._order.index(row[1]))
        for (i, one), (j, other) in combinations(rows, 2):
            self._cosines.setdefault(f"{one},{other}", []).append(result.cosines[i, j])

    def take(self) -> dict[str, dict[str, float]]:
        """Return each pair's mean cosine, and the share of updates in which it was below 0."""
        kept = {pair: torch.stack(cosines) for pair, cosines in self._cosines.items()}
        self._cosines = {}
        return {
            pair: {"cosine": float(cosines.mean()), "share": float((cosines < 0).float().mean())}
            for pair, cosines in kept.items()
        }

    def to_json(self) -> dict[str, list[float]]:
        """Return the values since the last `take` as lists."""
        return {pair: torch.stack(cosines).tolist() for pair, cosines in self._cosines.items()}


class LossMeans:
    """Losses since the last line of the log, kept on the device until then."""

    def __init__(self, before: Mapping[str, Sequence[float]], device: torch.device):
        self.losses = {task: list(torch.tensor(v, device=device)) for task, v in before.items()}

    def add(self, record: StepRecord) -> None:
        """Add the losses of an update."""
        for task, loss in record.result.losses.items():
            self.losses.setdefault(task, []).append(loss.float())

    def take(self) -> dict[str, float]:
        """Return the mean loss of each task and reset."""
        means = {task: torch.stack(losses).mean() for task, losses in self.losses.items()}
        self.losses = {}
        return {task: float(mean) for task, mean in means.items()}

    def to_json(self) -> dict[str, list[float]]:
        """Return the values since the last `take` as lists."""
        return {task: torch.stack(losses).tolist() for task, losses in self.losses.items()}
