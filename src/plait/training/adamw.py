"""AdamW for a GPU: every parameter, both moments and the half-precision copies in one pass.

PyTorch's fused AdamW moves what a step cannot do without, and then some: it writes clipped
gradients back, and copies for computing are made in a pass of their own.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from plait.model.kernels import run_adamw, usable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

CHUNK = 4096
"""Elements that one program treats."""


class AdamW(torch.optim.AdamW):
    """torch.optim.AdamW, whose step is one kernel where Triton is; states are the same."""

    grad_scale: Tensor | None = None
    """What gradients are divided by as they are read; None to take them as they are."""

    def __init__(self, groups: Any, **settings: Any):
        super().__init__(groups, **settings)
        self.copies: dict[Tensor, Tensor] = {}
        """bfloat16 copies to be kept up to date with their parameters."""
        self.kept_copies = False
        """Whether the last step did so; it does not where PyTorch's own took over."""
        self._tables: dict[tuple[int, ...], Tensor] = {}

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Move every parameter that has a gradient."""
        moved = [
            (number, parameter)
            for number, group in enumerate(self.param_groups)
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        self.kept_copies = closure is None and bool(moved) and _fits(p for _, p in moved)
        if not self.kept_copies:
            return super().step(closure)
        states = [self._state_of(parameter) for _, parameter in moved]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        group = self.param_groups[0]
        counts = torch.stack(steps).double()
        powers = [(counts * math.log(beta)).exp() for beta in group["betas"]]  # all groups' betas
        corrections = (1 - torch.stack(powers, dim=1)).float()
        run_adamw(
            self._table(moved, states),
            corrections,
            torch.stack([g["lr"] for g in self.param_groups]),
            self._decays(),
            self.grad_scale,
            group["betas"],
            group["eps"],
            CHUNK,
        )
        return None

    def _state_of(self, parameter: nn.Parameter) -> Mapping[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state

    def _decays(self) -> Tensor:
        key = (-1, *(id(group) for group in self.param_groups))
        if key not in self._tables:
            decays = [group["weight_decay"] for group in self.param_groups]
            self._tables[key] = torch.tensor(decays, device=self.param_groups[0]["lr"].device)
        return self._tables[key]

    def _table(self, moved: list[tuple[int, nn.Parameter]], states: list[Any]) -> Tensor:
        """Write down where everything is, a row per chunk; kept, as a captured step reads it."""
        places = []
        for (group, parameter), state in zip(moved, states, strict=True):
            assert parameter.grad is not None
            copy = self.copies.get(parameter)
            parts = (parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"])
            half = 0 if copy is None else copy.data_ptr()
            places.append((*(p.data_ptr() for p in parts), half, parameter.numel(), group))
        key = tuple(number for place in places for number in place)
        if key not in self._tables:
            rows = []
            for number, (p, g, m, v, half, size, group) in enumerate(places):
                for start in range(0, size, CHUNK):
                    at = 4 * start  # bytes
                    there = half and half + 2 * start
                    left = min(CHUNK, size - start)
                    rows.append((p + at, g + at, m + at, v + at, there, left, number, group))
            self._tables[key] = torch.tensor(rows).to(moved[0][1].device)
        return self._tables[key]


def _fits(parameters: Any) -> bool:
    """Say whether the kernel can treat them: fp32 on a GPU, without holes, on 16 bytes."""
    return usable() and all(
        part.is_cuda
        and part.dtype == torch.float32
        and part.is_contiguous()
        and part.data_ptr() % 16 == 0
        for parameter in parameters
        for part in (parameter, parameter.grad)
    )
