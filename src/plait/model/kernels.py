"""Kernels of our own, in Triton, for what takes several small ones of PyTorch's.

At a few hundred tokens a kernel costs about two microseconds whatever it does, so fewer is
faster. Each function here says the same in plain PyTorch, and does that where Triton is missing.
Sums are taken in a fixed order: two runs agree to the last bit.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

if TYPE_CHECKING:
    from torch import Tensor, nn

try:
    import triton

    from plait.model import triton_kernels
except ImportError:  # not on this platform
    triton = None


@cache
def usable() -> bool:
    """Say whether the kernels can be compiled and run here."""
    if triton is None or not torch.cuda.is_available():
        return False
    try:  # Triton needs a C compiler for its launcher, which a slim machine may lack
        vectors = torch.ones(2, 16, device="cuda")
        one = torch.ones(16, device="cuda")
        _AddNorm.apply(vectors, vectors.bfloat16(), one, one, one, 1e-5, 0.0, None)  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
    except Exception:
        return False
    return True


def add_norm(
    residual: Tensor,
    branch: Tensor,
    bias: Tensor,
    norm: nn.LayerNorm,
    dropout: float,
    seed: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return LayerNorm(residual + dropout(branch + bias)), in full and in the branch's precision.

    All [tokens, width], but for the bias [width]. `seed`, one number on the device, says what
    drops out; None where nothing does.
    """
    given = (residual, branch, bias, norm.weight, norm.bias, norm.eps, dropout, seed)
    full, half = _AddNorm.apply(*given)  # type: ignore[no-untyped-call]
    return full, half


def add_norm_plainly(
    residual: Tensor,
    branch: Tensor,
    bias: Tensor,
    norm: nn.LayerNorm,
    dropout: float,
    training: bool,
) -> tuple[Tensor, Tensor]:
    """Return the same by PyTorch's own kernels, which draw otherwise."""
    full = norm(residual + F.dropout(branch + bias.to(branch.dtype), dropout, training))
    return full, full.to(branch.dtype)


def add_column_sums(target: Tensor, rows: Tensor) -> None:
    """Add the sums of the columns of rows [n, width] to target [width], in fp32."""
    num_rows, width = rows.shape
    if num_rows > 4096 or not usable():  # PyTorch's own spreads long columns over more programs
        target.add_(rows.sum(dim=0, dtype=target.dtype))
        return
    triton_kernels.sum_columns[(triton.cdiv(width, 32),)](
        rows, target, num_rows, width, rows.stride(0), BLOCK_ROWS=64, BLOCK=32, num_warps=4
    )


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        residual: Tensor,
        branch: Tensor,
        shift: Tensor,
        weight: Tensor,
        bias: Tensor,
        eps: float,
        dropout: float,
        seed: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        num_rows, width = residual.shape
        residual, branch = residual.contiguous(), branch.contiguous()
        full, half = torch.empty_like(residual), torch.empty_like(branch)
        total = torch.empty_like(residual)
        moments = residual.new_empty(num_rows, 2)
        block = triton.next_power_of_2(width)
        triton_kernels.forward[(num_rows,)](
            residual, branch, shift, weight, bias, branch if seed is None else seed,
            full, half, total, moments, width, eps, dropout,
            DROPS=seed is not None, BLOCK=block, num_warps=4,
        )  # fmt: skip
        ctx.save_for_backward(total, moments, weight, *(() if seed is None else (seed,)))
        ctx.parameters, ctx.dropout, ctx.half = (weight, bias, shift), dropout, branch.dtype
        ctx.set_materialize_grads(False)
        return full, half

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor | None) -> Any:
        total, moments, weight, *seed = ctx.saved_tensors
        num_rows, width = total.shape
        present = [g.contiguous() for g in outer if g is not None]
        if not present:
            return (None,) * 8
        to_full = outer[0].contiguous() if outer[0] is not None else present[0]
        to_half = outer[1].contiguous() if outer[1] is not None else present[0]
        to_residual = torch.empty_like(total)
        to_branch = torch.empty_like(total, dtype=ctx.half)
        learns = any(ctx.needs_input_grad[2:5])
        programs = _num_programs(num_rows)
        partial = total.new_empty(programs if learns else 1, 3, width)
        block = triton.next_power_of_2(width)
        triton_kernels.backward[(programs,)](
            to_full, to_half, total, moments, weight, seed[0] if seed else total,
            to_residual, to_branch, partial, num_rows, programs, width, ctx.dropout,
            DROPS=bool(seed), FULL=outer[0] is not None, HALF=outer[1] is not None,
            LEARNS=learns, BLOCK=block, num_warps=4,
        )  # fmt: skip
        to_weight = to_bias = to_shift = None
        if learns:
            to_weight, to_bias, to_shift = _finish(ctx.parameters, partial)
        return to_residual, to_branch, to_shift, to_weight, to_bias, None, None, None


def _num_programs(num_rows: int) -> int:
    """Say over how many programs a backward pass is spread; each leaves one row to be summed."""
    return min(num_rows, max(128, min(512, num_rows // 8)))


def _finish(parameters: tuple[Tensor, ...], partial: Tensor) -> tuple[Any, ...]:
    """Sum up the programs' rows, into gradients that are there or as new ones."""
    if any(parameter.grad is None for parameter in parameters):
        return partial.sum(dim=0).unbind()
    weight, bias, shift = (parameter.grad for parameter in parameters)
    width = partial.shape[-1]
    triton_kernels.sum_partial[(triton.cdiv(width, 32), 3)](
        partial, weight, bias, shift, len(partial), width, BLOCK_ROWS=64, BLOCK=32, num_warps=4
    )
    return None, None, None
