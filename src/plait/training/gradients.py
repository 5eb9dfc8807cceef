"""Room for the gradients of one update, laid out end to end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor, nn


class FlatGradients:
    """Room for gradients in one flat tensor: shared parameters first, then each head.

    Parameters get views of it as their `.grad`, so that backward passes write straight into
    place and aggregation and clipping are a few operations on long vectors.
    """

    def __init__(
        self,
        shared: Sequence[nn.Parameter],
        heads: Mapping[str, Sequence[nn.Parameter]],
        num_rows: int,
    ):
        self.shared = list(shared)
        self.heads = {task: list(parameters) for task, parameters in heads.items()}
        num_shared = sum(map(_slot, self.shared))
        every = [*self.shared, *(p for ps in self.heads.values() for p in ps)]
        device = every[0].device
        self.total = torch.zeros(sum(map(_slot, every)), device=device)
        self.reduced, self.own = self.total[:num_shared], self.total[num_shared:]
        """What the update reads: of the shared parameters, and of all heads."""
        # Where one row is enough, tasks add up in the place the update reads.
        self.rows = (
            self.reduced.unsqueeze(0)
            if num_rows == 1
            else torch.zeros(num_rows, num_shared, device=device)
        )
        self._row_views = [_views(row, self.shared) for row in self.rows]
        self._shared_views = _views(self.reduced, self.shared)
        self._head_views: dict[str, list[Tensor]] = {}
        start = num_shared
        for task, parameters in self.heads.items():
            size = sum(map(_slot, parameters))
            self._head_views[task] = _views(self.total[start : start + size], parameters)
            start += size

    @property
    def apart(self) -> bool:
        """Whether tasks have rows of their own, or add up where the update reads."""
        return len(self.rows) > 1

    def clear(self) -> None:
        """Set every gradient to 0."""
        self.total.zero_()
        if self.apart:
            self.rows.zero_()

    def hide(self) -> None:
        """Let nobody add to what is collected: what asks for gradients on the way gets its own."""
        self._leave_shared()
        for parameters in self.heads.values():
            for parameter in parameters:
                parameter.grad = None

    def collect(self, task: str, row: int | None) -> None:
        """Let the next backward pass add to this row, if any, and to the task's head."""
        self._leave_shared()
        if row is not None:
            _point(self.shared, self._row_views[row])
        _point(self.heads[task], self._head_views[task])

    def multiply(self, factor: Tensor) -> None:
        """Multiply every gradient that was collected."""
        self.total.mul_(factor)
        if self.apart:
            self.rows.mul_(factor)

    def apply(self, tasks: Collection[str], shared: bool) -> None:
        """Let the optimizer read the gradients of these heads, and the reduced one if there is any.

        It passes over all others, which a zero gradient would still move: by momentum and decay.
        """
        self._leave_shared()
        if shared:
            _point(self.shared, self._shared_views)
        for task, parameters in self.heads.items():
            for parameter, view in zip(parameters, self._head_views[task], strict=True):
                parameter.grad = view if task in tasks else None

    def _leave_shared(self) -> None:
        """Let nobody see the shared parameters' gradients, and keep strays out of the rows."""
        for parameter in self.shared:
            parameter.grad = None


def _slot(parameter: nn.Parameter) -> int:
    """Return the room a gradient takes: a GPU reads fastest what begins on 16 bytes."""
    return -(-parameter.numel() // 4) * 4


def _views(flat: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Cut a flat tensor into pieces of the parameters' shapes."""
    pieces = flat.split([_slot(p) for p in parameters]) if parameters else ()
    pairs = zip(pieces, parameters, strict=True)
    return [piece[: p.numel()].view_as(p) for piece, p in pairs]


def _point(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
