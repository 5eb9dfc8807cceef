"""Loss weighting: a task's loss becomes what it adds to the objective of an update.

The losses of one update come one after the other, each followed by its own backward pass, so
that no two graphs are in memory at once. What can only be known from all of them together
is a factor on the whole gradient afterwards. The recipe's own task weights multiply on top.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import nn

from plait.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


class Weighting(ABC):
    """Contract of the family. `tasks` are the stage's, `device` is where the losses are.

    What is remembered lives in tensors that are changed in place, so that a step can be
    captured and replayed; nothing here waits for the device. Calls for different tasks may run
    side by side on a GPU, so that what one of them changes is its own task's.
    """

    lr: float | None = None
    """Learning rate of the weighting's parameters; the heads' rate unless set."""
    capturable: ClassVar[bool] = False
    """Whether it keeps to the above, so that a CUDA graph can replay it."""
    compares: ClassVar[bool] = False
    """Whether it compares the tasks of an update, so that it needs updates with several tasks."""
    looks_again: ClassVar[bool] = False
    """Whether it wants the losses of the same batches once more after the update, which
    costs a forward pass over each of them."""

    def __init__(self, tasks: Sequence[str], device: torch.device):
        self.tasks, self.device = tuple(tasks), device

    @abstractmethod
    def __call__(self, task: str, loss: Tensor) -> Tensor:
        """Turn the loss of one batch, regularizer terms included, into a term to minimise."""

    def scale(self, num_turns: int) -> Tensor | None:  # noqa: ARG002
        """Return what the gradient of the update is multiplied by, once all losses are in.

        The gradient is a mean over the update's turns.
        """
        return None

    def after_update(self, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:  # noqa: B027
        """Hear each task's mean loss before and after the update; only where it looks again."""

    def end_epoch(self) -> None:  # noqa: B027
        """An epoch of the schedule is over."""

    def parameters(self, task: str) -> list[nn.Parameter]:  # noqa: ARG002
        """Return what the optimizer is to learn with a task's head, without decay."""
        return []

    def tensors(self) -> dict[str, Tensor]:
        """Return what it remembers, its parameters included, for a checkpoint."""
        return {}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` returned, from whatever device."""
        with torch.no_grad():
            for name, tensor in self.tensors().items():
                tensor.copy_(tensors[name])


WEIGHTINGS: Registry[Weighting] = Registry("weighting", "a task's loss -> its part of the update")


@WEIGHTINGS.register("fixed")
class Fixed(Weighting):
    """Leaves the losses to the recipe's task weights alone."""

    capturable = True

    def __call__(self, task: str, loss: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss as it is."""
        return loss


@WEIGHTINGS.register("uncertainty")
class Uncertainty(Weighting):
    """Learns how uncertain each task is, and trusts it accordingly (Kendall et al. 2018).

    A loss L becomes exp(-s) L + s, with a learned number s per task, 0 at first: a task whose
    loss stays large is turned down, and s keeps it from being turned down to nothing. (Multi-Task
    Learning Using Uncertainty to Weigh Losses for Scene Geometry and Semantics.) The paper has
    exp(-s) L + s/2 for classes and exp(-s) L/2 + s/2 for squared errors, s being the logarithm of
    the variance: both are half of ours, the first with s starting at log 2 less. The s learn at
    the heads' rate; as AdamW moves them by about that much an update, a small rate needs `lr`.
    """

    capturable = True

    def __init__(self, tasks: Sequence[str], device: torch.device, *, lr: float | None = None):
        super().__init__(tasks, device)
        if lr is not None and lr <= 0:
            raise ValueError(f"lr = {lr} is not above 0")
        self.lr = lr
        self._s = {task: nn.Parameter(torch.zeros((), device=device)) for task in tasks}

    def __call__(self, task: str, loss: Tensor) -> Tensor:
        """Return exp(-s) L + s."""
        s = self._s[task]
        return loss * torch.exp(-s) + s

    def parameters(self, task: str) -> list[nn.Parameter]:
        """Return the task's s."""
        return [self._s[task]]

    def tensors(self) -> dict[str, Tensor]:
        """Return every s."""
        return {f"s/{task}": s for task, s in self._s.items()}


@WEIGHTINGS.register("dwa")
class DWA(Weighting):
    """Turns up the tasks whose losses fall slowest from epoch to epoch (Liu et al. 2019).

    Dynamic weight averaging (End-to-End Multi-Task Learning with Attention): with K tasks, the
    factor of task i is K softmax(r / temperature)_i, r_i its mean loss of the last epoch over
    that of the one before. Until a task has two epochs behind it, its r is 1; an epoch without
    it does not count. So a stage of one or two epochs is weighted evenly, as in the paper.
    """

    capturable = True

    def __init__(self, tasks: Sequence[str], device: torch.device, *, temperature: float = 2.0):
        super().__init__(tasks, device)
        if temperature <= 0:
            raise ValueError(f"temperature = {temperature} is not above 0")
        self.temperature = temperature
        unknown = torch.full((len(self.tasks),), torch.nan, device=device)
        self._sum, self._count = torch.zeros_like(unknown), torch.zeros_like(unknown)
        self._last, self._before = unknown.clone(), unknown.clone()
        """Mean losses of a task's last two epochs; nan where there was none."""
        self._factor = torch.ones_like(unknown)

    def __call__(self, task: str, loss: Tensor) -> Tensor:
        """Return the loss times the task's factor, and add it to the epoch's mean."""
        i = self.tasks.index(task)
        self._sum[i].add_(loss.detach())
        self._count[i].add_(1)
        return loss * self._factor[i]

    def end_epoch(self) -> None:
        """Set the factors of the next epoch."""
        seen = self._count > 0
        mean = self._sum / self._count.clamp(min=1)
        self._before.copy_(torch.where(seen, self._last, self._before))
        self._last.copy_(torch.where(seen, mean, self._last))
        ratio = (self._last / self._before).nan_to_num(1.0, 1.0, 1.0)
        self._factor.copy_(len(self.tasks) * torch.softmax(ratio / self.temperature, dim=0))
        self._sum.zero_()
        self._count.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """Return the epoch so far, the two before it, and the factors."""
        return {
            "sum": self._sum,
            "count": self._count,
            "last": self._last,
            "before": self._before,
            "factor": self._factor,
        }


@WEIGHTINGS.register("famo")
class FAMO(Weighting):
    """Keeps the losses falling at one pace, by their logarithms (Liu et al. 2023).

    Fast Adaptive Multitask Optimization, Algorithm 1: the gradient of an update is the weighted
    mean of the tasks' with weights z_i / L_i, z the softmax of a logit per task. After the
    update each loss is measured again on the same batch, as in the paper, which costs a forward
    pass; logits move so that tasks whose log loss fell less count for more. As in the authors'
    code they move by Adam at rate `lr`, with `gamma` times the logit added to its gradient.

    The weights of an update add up to 1: where it has batches of one task only, its loss is
    left as it is. So it takes a schedule whose turns have several tasks, or `accumulate`.
    """

    capturable = True
    compares = True
    looks_again = True

    def __init__(
        self,
        tasks: Sequence[str],
        device: torch.device,
        *,
        lr: float = 0.025,
        gamma: float = 0.01,
    ):
        super().__init__(tasks, device)
        if lr <= 0:
            raise ValueError(f"lr = {lr} is not above 0")
        if gamma < 0:
            raise ValueError(f"gamma = {gamma} is below 0")
        self._rate, self._gamma = lr, gamma
        self._logits, self._mean, self._square, self._steps = (
            torch.zeros(len(self.tasks), device=device) for _ in range(4)
        )
        self._shares = torch.zeros(len(self.tasks), device=device)
        """Each task's z / L, summed over its batches of this update."""

    def __call__(self, task: str, loss: Tensor) -> Tensor:
        """Return z log L, whose gradient is z / L times the loss's."""
        i = self.tasks.index(task)
        z = torch.softmax(self._logits, dim=0)[i]
        loss = loss + 1e-8
        self._shares[i].add_((z / loss).detach())
        return z * loss.log()

    def scale(self, num_turns: int) -> Tensor | None:
        """Return what makes the weights of all batches add up to 1."""
        factor = num_turns / self._shares.sum()
        self._shares.zero_()
        return factor

    def after_update(self, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
        """Move the logits of the tasks that took part, by their losses without regularizer terms.

        The paper has one loss per task, which is optimised and compared; without regularizers that
        is what happens here. With them, what is optimised is the loss and its terms, and the
        weights divide by both. What is compared is the loss alone, a departure: a term is drawn
        anew whenever it is measured (SMART's noise) or leans on weights that the update moves
        (Bregman's reference), so that its change would say little of the task, and measuring
        SMART's again would cost several passes with gradients. So the tasks' own losses are what
        falls at one pace.
        """
        if len(before) == 1:  # nothing to set it against, and decay alone would move its logit
            return
        rows = [self.tasks.index(task) for task in before]
        fell = torch.stack([(before[t] + 1e-8).log() - (after[t] + 1e-8).log() for t in before])
        logits = torch.stack([self._logits[i] for i in rows])
        z = torch.softmax(logits, dim=0)
        # The softmax's derivative times how far each log loss fell.
        slope = z * (fell - (z * fell).sum()) + self._gamma * logits
        for i, gradient in zip(rows, slope.unbind(), strict=True):
            self._adam(i, gradient)

    def _adam(self, i: int, gradient: Tensor) -> None:
        """Move one logit as torch.optim.Adam would with its usual betas and eps."""
        steps = self._steps[i].add_(1)
        mean = self._mean[i].lerp_(gradient, 0.1)
        square = self._square[i].lerp_(gradient.square(), 0.001)
        deviation = (square / (1 - 0.999**steps)).sqrt() + 1e-8
        self._logits[i].sub_(self._rate * mean / (1 - 0.9**steps) / deviation)

    def tensors(self) -> dict[str, Tensor]:
        """Return the logits and what Adam keeps of their gradients."""
        return {
            "logits": self._logits,
            "mean": self._mean,
            "square": self._square,
            "steps": self._steps,
        }
