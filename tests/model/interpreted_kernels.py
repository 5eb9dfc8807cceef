"""Checks of the Triton kernels, run one by one by test_triton_kernels.py in the interpreter.

scripts/check_gpu.py compares with the same sums on a GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plait.model import kernels


def mix(x: Tensor) -> Tensor:
    """Scramble 32 bits, held in 64."""
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D & 0xFFFFFFFF
    x = x ^ (x >> 15)
    x = x * 0x846CA68B & 0xFFFFFFFF
    return x ^ (x >> 16)


def factors(seed: int, places: Tensor, dropout: float) -> Tensor:
    """Say what each place is multiplied by: 0 where it drops out."""
    drawn = (mix(mix(places) ^ seed) >> 8).double() * 2**-24
    return (drawn >= dropout).double() / (1 - dropout)


def table_factors(seed: int, lengths: Sequence[int], heads: int, dropout: float) -> list[Tensor]:
    """Say the same of the weights of each row's table, [heads, queries, keys]."""
    tables = []
    for i, num in enumerate(lengths):
        tokens = torch.arange(num)
        first = (i * heads + torch.arange(heads))[:, None, None] * 128
        tables.append(factors(seed, (first + tokens[:, None]) * 128 + tokens, dropout))
    return tables


def mix_rows(qkv: Tensor, lengths: Sequence[int], heads: int, times: Sequence[Tensor]) -> Tensor:
    """Attention row by row, weights times `times`."""
    rows = []
    for row, factor in zip(qkv.split(list(lengths)), times, strict=True):
        q, k, v = row.unflatten(1, (3, heads, -1)).permute(1, 2, 0, 3)
        weights = torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1)
        rows.append((weights * factor @ v).transpose(0, 1).flatten(1))
    return torch.cat(rows)


def check_attention() -> None:
    """Rows of all sizes, none at all among them, with dropout and without."""
    cases = ((2, 16, [5, 17, 0, 33], 40), (3, 32, [1, 31, 32], 32), (2, 64, [100, 65, 3], 128))
    for heads, head, lengths, length in cases:
        bounds = torch.tensor([0, *lengths]).cumsum(0).int()
        qkv = torch.randn(sum(lengths), 3 * heads * head, dtype=torch.float64)
        outer = torch.randn(len(qkv), heads * head, dtype=torch.float64)
        for dropout in (0.0, 0.3):
            times = table_factors(99, lengths, heads, dropout)
            mine, theirs = qkv.half().requires_grad_(), qkv.clone().requires_grad_()
            seed = torch.tensor(99) if dropout else None
            out = kernels.attend(mine, bounds, length, heads, dropout, seed)
            expected = mix_rows(theirs, lengths, heads, times)
            out.backward(outer.half())
            expected.backward(outer)
            assert_near(out.double(), expected, 2e-3)
            assert_near(mine.grad.double(), theirs.grad, 2e-3)


def check_add_norm() -> None:
    """Outputs and all gradients, new ones and ones added to what is there."""
    for num_rows in (7, 300, 1100):
        norm = nn.LayerNorm(48)
        nn.init.normal_(norm.weight)
        inputs = [torch.randn(num_rows, 48), torch.randn(num_rows, 48), torch.randn(48)]
        residual, branch, bias = (part.requires_grad_() for part in inputs)
        learned = [bias, norm.weight, norm.bias]
        outer = [torch.randn(num_rows, 48), torch.randn(num_rows, 48)]
        places = torch.arange(48 * num_rows).view(num_rows, 48)
        for dropout, seed in ((0.0, None), (0.4, torch.tensor(5))):
            for parameter in learned:
                parameter.grad = None
            times = factors(5, places, dropout).float() if seed is not None else torch.ones(())
            full, half = kernels.add_norm(residual, branch, bias, norm, dropout, seed)
            expected = norm(residual + (branch + bias) * times)
            assert_near(full, expected, 1e-5)
            theirs = torch.autograd.grad(expected, [residual, branch, *learned], sum(outer))
            mine = torch.autograd.grad(
                (full, half), [residual, branch, *learned], outer, retain_graph=True
            )
            for a, b in zip(mine, theirs, strict=True):
                assert_near(a, b, 1e-5)
            for parameter in learned:
                parameter.grad = torch.ones(48)
            torch.autograd.backward((full, half), outer)
            for parameter, b in zip(learned, theirs[2:], strict=True):
                assert_near(parameter.grad - 1, b, 1e-5)


def check_column_sums() -> None:
    """Few rows and many, however they lie in memory."""
    kernels.usable = lambda: True
    for num_rows in (1, 3, 64, 300, 1000):
        wide = torch.randn(num_rows, 170).half()
        across = torch.randn(70, num_rows).half().t()
        for rows in (wide[:, :70].contiguous(), wide[:, 9:79], across, wide[:1, :1].expand(9, 70)):
            target = torch.ones(70)
            kernels.add_column_sums(target, rows)
            assert_near(target - 1, rows.float().sum(dim=0), 1e-5)


def check_look_up() -> None:
    """Ids that come once, often and never."""
    for num in (1, 5, 130, 600):
        table, ids = torch.randn(40, 200, requires_grad=True), torch.randint(40, (num,))
        outer = torch.randn(num, 200)
        (expected,) = torch.autograd.grad(F.embedding(ids, table), table, outer)
        for before in (None, torch.ones_like(table)):
            table.grad = before
            kernels._LookUp.apply(table, ids).backward(outer)
            assert_near(table.grad - (0 if before is None else 1), expected, 1e-5)


def check_long_rows() -> None:
    """Two to four of them, of a length that no block divides."""
    for num_rows in (2, 3, 4):
        rows = torch.randn(num_rows, 2500)[:, :2403]
        assert_near(kernels.row_products(rows), rows @ rows.T, 1e-5)
        weights, out = torch.randn(num_rows, dtype=torch.float64), torch.full((2403,), torch.nan)
        kernels.mix_rows(weights, rows, out)
        assert_near(out, weights.float() @ rows, 1e-5)


def check_devices() -> None:
    """Kernels begin on the device of what they are given, whichever is current."""
    norm, rows, bounds = nn.LayerNorm(48), torch.randn(5, 48), torch.tensor([0, 5]).int()
    with patch("torch.cuda.device_of", return_value=nullcontext()) as device_of:
        kernels.add_norm(rows, rows, norm.bias, norm, 0.0, None)
        kernels.attend(rows.half(), bounds, 5, 1, 0.0, None)
    assert [call.args[0].dtype for call in device_of.call_args_list] == [rows.dtype, torch.half]


def assert_near(found: Tensor, expected: Tensor, bound: float) -> None:
    """Compare by norm, relative."""
    distance = ((found - expected).norm() / expected.norm()).item()
    assert distance < bound, distance


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[f"check_{sys.argv[1]}"]()
