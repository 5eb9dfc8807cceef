"""Kernels of our own, in Triton, for what takes several small ones of PyTorch's.

At a few hundred tokens a kernel costs about two microseconds whatever it does, so fewer is
faster. Each function here says the same in plain PyTorch, and does that where Triton is missing.
Sums are taken in a fixed order: two runs agree to the last bit.
"""

from __future__ import annotations

import subprocess
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

if TYPE_CHECKING:
    from torch import Tensor, nn

try:
    import triton
    from triton.errors import TritonError

    from plait.model import triton_kernels
except ImportError:  # not on this platform
    triton = None


MOST_PROGRAMS = 256
"""Programs that a backward pass over rows is spread over; each leaves one row to be summed."""
MOST_IDS = 4096
"""Ids that are compared with one another to see which are the same."""
MOST_ROWS = 4
"""Long rows that are gone through together."""
SHORT_ROW, LONGEST_ROW = 64, 128
"""Tokens of a row that a small program, and any, lets look at one another."""


@cache
def usable() -> bool:
    """Say whether the kernels can be compiled and run here."""
    if triton is None or not torch.cuda.is_available():
        return False
    vectors = torch.ones(2, 16, device="cuda")
    norm = torch.nn.LayerNorm(16, device="cuda")
    try:  # Triton needs a C compiler for its launcher, which a slim machine may lack
        add_norm(vectors, vectors.bfloat16(), norm.bias, norm, 0.0, None)
        torch.cuda.synchronize()
    except (RuntimeError, OSError, subprocess.SubprocessError, TritonError):
        return False
    return True


@cache
def has_bf16(device: torch.device) -> bool:
    """Say whether a GPU multiplies halves as attention does here; before Ampere they do not."""
    return torch.cuda.get_device_capability(device) >= (8, 0)


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


def can_attend(qkv: Tensor, num_heads: int, length: int) -> bool:
    """Say whether `attend` takes rows of at most `length` tokens with so many heads."""
    head = qkv.shape[-1] // 3 // num_heads
    halved = qkv.is_cuda and qkv.dtype in (torch.bfloat16, torch.float16) and has_bf16(qkv.device)
    return halved and length <= LONGEST_ROW and head in (16, 32, 64) and usable()


def attend(
    qkv: Tensor, bounds: Tensor, length: int, num_heads: int, dropout: float, seed: Tensor | None
) -> Tensor:
    """Let the tokens of each row look at one another: [tokens, 3 * width] to [tokens, width].

    A row's whole table of weights fits into one program, so that there is one kernel each way, and
    one more where rows may be long. Rows begin at `bounds` and have at most `length` tokens.
    """
    mixed: Tensor = _Attention.apply(qkv, bounds, length, num_heads, dropout, seed)  # type: ignore[no-untyped-call]
    return mixed


def add_column_sums(target: Tensor, rows: Tensor) -> None:
    """Add the sums of the columns of rows [n, width] to target [width], in fp32."""
    num_rows, width = rows.shape
    if num_rows > 4096 or not usable():  # PyTorch's own spreads long columns over more programs
        target.add_(rows.sum(dim=0, dtype=target.dtype))
        return
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    block = min(256, max(32, triton.next_power_of_2(num_rows)))
    triton_kernels.sum_columns[(triton.cdiv(width, 32),)](
        rows, target, num_rows, width, rows.stride(0), BLOCK_ROWS=block, BLOCK=32, num_warps=4
    )


def look_up(table: Tensor, ids: Tensor) -> Tensor:
    """Return the rows of a table [rows, width] that ids [...] name: [..., width].

    Where the table has a gradient on a GPU already, theirs are added to it, instead of to a new
    one as large as the table that is then added as a whole.
    """
    if not (table.is_cuda and table.requires_grad and ids.numel() <= MOST_IDS and usable()):
        return F.embedding(ids, table)
    found: Tensor = _LookUp.apply(table, ids)  # type: ignore[no-untyped-call]
    return found


def takes_rows(rows: Tensor) -> bool:
    """Say whether `row_products` and `mix_rows` take these rows, [rows, parameters]."""
    return (
        rows.is_cuda
        and rows.dtype == torch.float32
        and 2 <= len(rows) <= MOST_ROWS
        and rows.stride(1) == 1
        and rows.numel() < 2**31
        and usable()
    )


def row_products(rows: Tensor) -> Tensor:
    """Return the inner product of every two rows, [rows, rows], reading each row once."""
    num_rows, length = rows.shape
    programs = min(1024, triton.cdiv(length, 1024))
    partial = rows.new_empty(programs, MOST_ROWS, MOST_ROWS)
    with torch.cuda.device_of(rows):
        triton_kernels.row_products[(programs,)](
            rows, partial, length, rows.stride(0), programs,
            NUM_ROWS=num_rows, BLOCK=1024, num_warps=4,
        )  # fmt: skip
    return partial.sum(dim=0)[:num_rows, :num_rows]


def mix_rows(weights: Tensor, rows: Tensor, out: Tensor) -> None:
    """Write weights @ rows, [parameters], into a contiguous `out`."""
    length = rows.shape[1]
    with torch.cuda.device_of(rows):
        triton_kernels.mix_rows[(triton.cdiv(length, 1024),)](
            rows, weights.float().contiguous(), out, length, rows.stride(0),
            NUM_ROWS=len(rows), BLOCK=1024, num_warps=4,
        )  # fmt: skip


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, ids: Tensor) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.table = table
        return F.embedding(ids, table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> Any:
        (ids,), target = ctx.saved_tensors, ctx.table.grad
        if target is None:
            num_rows = len(ctx.table)
            return torch.ops.aten.embedding_dense_backward(outer[0], ids, num_rows, -1, False), None
        num, width = ids.numel(), outer[0].shape[-1]
        triton_kernels.add_rows[(num, triton.cdiv(width, 128))](
            ids.contiguous(), outer[0].contiguous(), target, num, width,
            TOKENS=32, BLOCK=128, num_warps=4,
        )  # fmt: skip
        return None, None


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
        with torch.cuda.device_of(residual):  # else Triton takes the current one
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
        together = 1 if num_rows <= MOST_PROGRAMS else 4
        programs = min(MOST_PROGRAMS, triton.cdiv(num_rows, together))
        partial = total.new_empty(programs if learns else 1, 3, width)
        block = triton.next_power_of_2(width)
        triton_kernels.backward[(programs,)](
            to_full, to_half, total, moments, weight, seed[0] if seed else total,
            to_residual, to_branch, partial, num_rows, programs, width, ctx.dropout,
            DROPS=bool(seed), FULL=outer[0] is not None, HALF=outer[1] is not None,
            LEARNS=learns, ROWS=together, BLOCK=block, num_warps=4,
        )  # fmt: skip
        to_weight = to_bias = to_shift = None
        if learns:
            to_weight, to_bias, to_shift = _finish(ctx.parameters, partial)
        return to_residual, to_branch, to_shift, to_weight, to_bias, None, None, None


def _finish(parameters: tuple[Tensor, ...], partial: Tensor) -> tuple[Any, ...]:
    """Sum up the programs' rows, into gradients that are there or as new ones."""
    if any(parameter.grad is None for parameter in parameters):
        return partial.sum(dim=0).unbind()
    weight, bias, shift = (parameter.grad for parameter in parameters)
    width = partial.shape[-1]
    triton_kernels.sum_partial[(triton.cdiv(width, 32), 3)](
        partial, weight, bias, shift, len(partial), width, BLOCK_ROWS=128, BLOCK=32, num_warps=4
    )
    return None, None, None


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        bounds: Tensor,
        length: int,
        num_heads: int,
        dropout: float,
        seed: Tensor | None,
    ) -> Tensor:
        qkv = qkv.contiguous()
        width = qkv.shape[-1] // 3
        head = width // num_heads
        mixed = qkv.new_empty(len(qkv), width)
        drops = seed is not None and dropout > 0
        source = seed if seed is not None and drops else bounds
        ctx.numbers, ctx.grid = (width, head**-0.5, dropout), (len(bounds) - 1, num_heads)
        common = {"DROPS": drops, "HEAD": head}
        ctx.kinds = [common | {"SHORT": True, "num_warps": 4}]
        if length > SHORT_ROW:
            ctx.kinds.append(common | {"SHORT": False, "num_warps": 8})
        with torch.cuda.device_of(qkv):
            for kind in ctx.kinds:
                triton_kernels.attend[ctx.grid](qkv, bounds, mixed, source, *ctx.numbers, **kind)
        ctx.save_for_backward(qkv, bounds, source)
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> Any:
        qkv, bounds, source = ctx.saved_tensors
        to_qkv, to_mixed = torch.empty_like(qkv), outer[0].contiguous()
        for kind in ctx.kinds:
            triton_kernels.attend_backward[ctx.grid](
                qkv, bounds, to_mixed, to_qkv, source, *ctx.numbers, **kind
            )
        return to_qkv, None, None, None, None, None
