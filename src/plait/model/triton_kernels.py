"""The Triton side of kernels.py: one program per row, or per block of columns."""

import triton
import triton.language as tl


@triton.jit
def forward(
    residual, branch, shift, weight, bias, seed, full, half, total, moments, width, eps, dropout,
    DROPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    at = row * width + columns
    x = tl.load(branch + at, mask=inside, other=0.0).to(tl.float32)
    x += tl.load(shift + columns, mask=inside, other=0.0)
    if DROPS:
        kept = tl.rand(tl.load(seed), at) >= dropout
        x = tl.where(kept, x / (1 - dropout), 0.0)
    x += tl.load(residual + at, mask=inside, other=0.0)
    mean = tl.sum(x, axis=0) / width
    centred = tl.where(inside, x - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, axis=0) / width + eps)
    w = tl.load(weight + columns, mask=inside, other=0.0)
    b = tl.load(bias + columns, mask=inside, other=0.0)
    y = centred * scale * w + b
    tl.store(total + at, x, mask=inside)
    tl.store(full + at, y, mask=inside)
    tl.store(half + at, y.to(half.dtype.element_ty), mask=inside)
    tl.store(moments + 2 * row, mean)
    tl.store(moments + 2 * row + 1, scale)


@triton.jit
def backward(
    to_full, to_half, total, moments, weight, seed, to_residual, to_branch, partial,
    num_rows, programs, width, dropout,
    DROPS: tl.constexpr, FULL: tl.constexpr, HALF: tl.constexpr, LEARNS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    w = tl.load(weight + columns, mask=inside, other=0.0)
    to_w = tl.zeros([BLOCK], tl.float32)
    to_b = tl.zeros([BLOCK], tl.float32)
    to_s = tl.zeros([BLOCK], tl.float32)
    for row in range(program, num_rows, programs):
        at = row * width + columns
        g = tl.zeros([BLOCK], tl.float32)
        if FULL:
            g += tl.load(to_full + at, mask=inside, other=0.0).to(tl.float32)
        if HALF:
            g += tl.load(to_half + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(moments + 2 * row)
        scale = tl.load(moments + 2 * row + 1)
        x = tl.load(total + at, mask=inside, other=0.0)
        unit = tl.where(inside, (x - mean) * scale, 0.0)
        to_w += g * unit
        to_b += g
        g = g * w
        along = tl.sum(g * unit, axis=0) / width
        shift = tl.sum(g, axis=0) / width
        g = (g - shift - unit * along) * scale
        tl.store(to_residual + at, g, mask=inside)
        if DROPS:
            kept = tl.rand(tl.load(seed), at) >= dropout
            g = tl.where(kept, g / (1 - dropout), 0.0)
        to_s += g
        tl.store(to_branch + at, g.to(to_branch.dtype.element_ty), mask=inside)
    if LEARNS:
        place = partial + program * 3 * width + columns
        tl.store(place, to_w, mask=inside)
        tl.store(place + width, to_b, mask=inside)
        tl.store(place + 2 * width, to_s, mask=inside)


@triton.jit
def sum_partial(
    partial, to_weight, to_bias, to_shift, programs, width,
    BLOCK_ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    which = tl.program_id(1)
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, programs, BLOCK_ROWS):
        rows = start + tl.arange(0, BLOCK_ROWS)
        at = rows[:, None] * 3 * width + which * width + columns[None, :]
        here = (rows < programs)[:, None] & inside[None, :]
        sums += tl.sum(tl.load(partial + at, mask=here, other=0.0), axis=0)
    if which == 0:
        target = to_weight
    elif which == 1:
        target = to_bias
    else:
        target = to_shift
    sums += tl.load(target + columns, mask=inside, other=0.0)
    tl.store(target + columns, sums, mask=inside)


@triton.jit
def sum_columns(
    rows, target, num_rows, width, stride, BLOCK_ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    sums = tl.zeros([BLOCK], tl.float32)
    for start in range(0, num_rows, BLOCK_ROWS):
        places = start + tl.arange(0, BLOCK_ROWS)
        here = (places < num_rows)[:, None] & inside[None, :]
        block = tl.load(rows + places[:, None] * stride + columns[None, :], mask=here, other=0.0)
        sums += tl.sum(block.to(tl.float32), axis=0)
    sums += tl.load(target + columns, mask=inside, other=0.0)
    tl.store(target + columns, sums, mask=inside)
