"""Storage for the gradients of one update in one flat tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from torch import Tensor, nn


class FlatGradients:
    """Gradients in one flat tensor: shared parameters first, then each head.

    Each parameter's `.grad` is a view of it, so that backward passes write into it directly, and
    aggregation and clipping are a few operations on long vectors.
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
        """The gradients that the update uses: of the shared parameters, and of all heads."""
        # With one row, tasks add their gradients directly to the one that the update uses.
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
        """Whether each task has a separate row; otherwise the tasks' gradients are summed."""
        return len(self.rows) > 1

    def clear(self) -> None:
        """Set every gradient to 0."""
        self.total.zero_()
        if self.apart:
            self.rows.zero_()

    def hide(self) -> None:
        """Detach all `.grad` views, so that other backward passes do not add to them."""
        self._leave_shared()
        for parameters in self.heads.values():
            for parameter in parameters:
                parameter.grad = None

    def collect(self, task: str, row: int | None) -> None:
        """Direct the next backward pass to this row, if any, and to the task's head."""
        self._leave_shared()
        if row is not None:
            _point(self.shared, self._row_views[row])
        _point(self.heads[task], self._head_views[task])

    def multiply(self, factor: Tensor) -> None:
        """Multiply all gradients by a factor."""
        self.total.mul_(factor)
        if self.apart:
            self.rows.mul_(factor)

    def apply(self, tasks: Collection[str], shared: bool) -> None:
        """Set `.grad` for the optimizer: of these heads and, if `shared`, of the shared parameters.

        All other gradients are None, because momentum and weight decay also move parameters with a
        zero gradient.
        """
        self._leave_shared()
        if shared:
            _point(self.shared, self._shared_views)
        for task, parameters in self.heads.items():
            for parameter, view in zip(parameters, self._head_views[task], strict=True):
                parameter.grad = view if task in tasks else None

    def _leave_shared(self) -> None:
        """Detach the `.grad` views of the shared parameters."""
        for parameter in self.shared:
            parameter.grad = None


def _slot(parameter: nn.Parameter) -> int:
    """Return the padded size of a gradient: a GPU reads fastest at multiples of 16 bytes."""
    return -(-parameter.numel() // 4) * 4


def _views(flat: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Cut a flat tensor into pieces of the parameters' shapes."""
    pieces = flat.split([_slot(p) for p in parameters]) if parameters else ()
    pairs = zip(pieces, parameters, strict=True)
    return [piece[: p.numel()].view_as(p) for piece, p in pairs]


def _point(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
