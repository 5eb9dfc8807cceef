"""Base classes of the aggregators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import torch

from plait.model.kernels import mix_rows, row_products, takes_rows
from plait.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor


class Aggregator(ABC):
    """Combines the gradients of the tasks into one gradient."""

    per_task: bool = True
    """Whether it must see each task's gradient, which costs a copy of the gradient per task. If
    not, the step adds them up as they come and hands over their sum, a single row without names.
    If so, it is not asked in a stage of which one task alone trains the encoder."""
    capturable: ClassVar[bool] = False
    """Whether it stays on the device and changes what it remembers in place, so that a CUDA
    graph can replay it. One that solves something on the CPU does not, and is the only kind
    that may wait for the device."""

    @abstractmethod
    def __call__(
        self, gradients: Tensor, generator: torch.Generator, tasks: Sequence[str] = ()
    ) -> Tensor:
        """Turn [tasks, parameters] into [parameters], without waiting for the device.

        Randomness comes from `generator`, which lives where the gradients do. `tasks` names
        the rows, which differ from update to update: what is remembered, is remembered by
        name. Where it is left out, the rows' numbers are their names.
        """

    def tensors(self) -> dict[str, Tensor]:
        """Return the state between updates, for a checkpoint."""
        return {}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:  # noqa: B027
        """Restore the state that `tensors` returned, from any device."""


class Mixing(Aggregator):
    """An aggregator whose result is a weighted sum of the tasks' gradients.

    The weights follow from the gradients' inner products, so that the long rows are read twice in
    all: for the products, and for the sum.
    """

    def __call__(
        self, gradients: Tensor, generator: torch.Generator, tasks: Sequence[str] = ()
    ) -> Tensor:
        """Return the weighted sum of the rows."""
        names = list(tasks) or [str(row) for row in range(len(gradients))]
        weights = self.mix(inner_products(gradients), generator, names)
        return weighted_sum(weights, gradients)

    @abstractmethod
    def mix(self, gram: Tensor, generator: torch.Generator, tasks: list[str]) -> Tensor:
        """Turn the inner products of every two gradients, [tasks, tasks], into a weight of each.

        The weights are where the products are; `tasks` are the rows' names.
        """


def draw_orders(gram: Tensor, generator: torch.Generator) -> Tensor:
    """Draw an order of all tasks for each task, [places, tasks, tasks].

    At place k row i is 0 but for a 1 at the k-th task of task i's order, itself included. So a
    method that takes the others one by one can do so for all tasks i at once, and on the device.
    """
    num_tasks = len(gram)
    draws = torch.rand(num_tasks, num_tasks, device=gram.device, generator=generator)
    marks = torch.nn.functional.one_hot(draws.argsort(dim=1), num_tasks).to(gram.dtype)
    return marks.transpose(0, 1)


PIECE = 8192
"""Number of parameters per piece in inner products on a GPU."""


def inner_products(rows: Tensor) -> Tensor:
    """Return the inner products of all pairs of rows, [rows, rows], for very long rows."""
    if takes_rows(rows):
        return row_products(rows)
    return multiply_in_pieces(rows, PIECE) if rows.is_cuda else rows @ rows.T


def weighted_sum(weights: Tensor, rows: Tensor, out: Tensor | None = None) -> Tensor:
    """Return weights @ rows, written to `out` if given."""
    if takes_rows(rows):
        out = torch.empty_like(rows[0]) if out is None else out
        mix_rows(weights, rows, out)
        return out
    total = weights.to(rows) @ rows
    return total if out is None else out.copy_(total)


def multiply_in_pieces(rows: Tensor, piece: int) -> Tensor:
    """Return rows @ rows.T as a sum over pieces, each a product by itself.

    A product so long and so narrow would otherwise be worked out by a small part of a GPU.
    """
    whole = rows.shape[1] // piece * piece
    pieces = rows[:, :whole].unflatten(1, (-1, piece)).transpose(0, 1)  # [pieces, rows, piece]
    rest = rows[:, whole:]
    return torch.bmm(pieces, pieces.transpose(1, 2)).sum(dim=0) + rest @ rest.T


AGGREGATORS: Registry[Aggregator] = Registry("aggregator", "task gradients -> one gradient")
