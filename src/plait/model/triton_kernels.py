"""The Triton side of kernels.py: one program per row or a few, per block of columns, per head."""

import triton
import triton.language as tl


@triton.jit
def _mix(x):
    """Scramble 32 bits so that every bit of the outcome depends on all (Wellons' lowbias32)."""
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x *= 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _kept(seed, places, dropout):
    """Draw which places do not drop out, each for itself: a tenth of the work of tl.rand."""
    drawn = _mix(_mix(places.to(tl.uint32)) ^ tl.load(seed).to(tl.uint32))
    return (drawn >> 8).to(tl.float32) * 5.9604644775390625e-08 >= dropout  # 2^-24


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
        x = tl.where(_kept(seed, at, dropout), x / (1 - dropout), 0.0)
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
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    w = tl.load(weight + columns, mask=columns < width, other=0.0)[None, :]
    to_w = tl.zeros([BLOCK], tl.float32)
    to_b = tl.zeros([BLOCK], tl.float32)
    to_s = tl.zeros([BLOCK], tl.float32)
    for first in range(program * ROWS, num_rows, programs * ROWS):
        rows = first + tl.arange(0, ROWS)
        real = rows < num_rows
        inside = real[:, None] & (columns < width)[None, :]
        at = rows[:, None] * width + columns[None, :]
        g = tl.zeros([ROWS, BLOCK], tl.float32)
        if FULL:
            g += tl.load(to_full + at, mask=inside, other=0.0).to(tl.float32)
        if HALF:
            g += tl.load(to_half + at, mask=inside, other=0.0).to(tl.float32)
        mean = tl.load(moments + 2 * rows, mask=real, other=0.0)[:, None]
        scale = tl.load(moments + 2 * rows + 1, mask=real, other=0.0)[:, None]
        x = tl.load(total + at, mask=inside, other=0.0)
        unit = tl.where(inside, (x - mean) * scale, 0.0)
        to_w += tl.sum(g * unit, axis=0)
        to_b += tl.sum(g, axis=0)
        g = g * w
        along = (tl.sum(g * unit, axis=1) / width)[:, None]
        shift = (tl.sum(g, axis=1) / width)[:, None]
        g = tl.where(inside, (g - shift - unit * along) * scale, 0.0)
        tl.store(to_residual + at, g, mask=inside)
        if DROPS:
            g = tl.where(_kept(seed, at, dropout), g / (1 - dropout), 0.0)
        to_s += tl.sum(g, axis=0)
        tl.store(to_branch + at, g.to(to_branch.dtype.element_ty), mask=inside)
    if LEARNS:
        inside = columns < width
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


@triton.jit
def add_rows(ids, rows, target, num, width, TOKENS: tl.constexpr, BLOCK: tl.constexpr):
    # A program per token and block of columns. The first token of an id adds up all of that id,
    # in their order, so that no two programs write to one place.
    token = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < width
    own = tl.load(ids + token)
    earlier = 0
    for start in range(0, token, TOKENS):
        others = start + tl.arange(0, TOKENS)
        same = tl.load(ids + others, mask=others < token, other=-1) == own
        earlier += tl.sum(same.to(tl.int32), axis=0)
    if earlier == 0:
        sums = tl.zeros([BLOCK], tl.float32)
        for start in range(token // TOKENS * TOKENS, num, TOKENS):
            others = start + tl.arange(0, TOKENS)
            same = tl.load(ids + others, mask=others < num, other=-1) == own
            if tl.sum(same.to(tl.int32), axis=0) > 0:
                at = others[:, None] * width + columns[None, :]
                here = same[:, None] & inside[None, :]
                sums += tl.sum(tl.load(rows + at, mask=here, other=0.0).to(tl.float32), axis=0)
        place = target + own * width + columns
        tl.store(place, tl.load(place, mask=inside, other=0.0) + sums, mask=inside)


@triton.jit
def _scores(q, k, num, scale, SIZE: tl.constexpr):
    """Return the softmax over keys, [queries, keys], of a row that has `num` tokens."""
    s = tl.dot(q, tl.trans(k)) * scale
    s = tl.where((tl.arange(0, SIZE) < num)[None, :], s, float("-inf"))
    e = tl.exp(s - tl.max(s, axis=1)[:, None])
    return e / tl.sum(e, axis=1)[:, None]


@triton.jit
def _row_places(start, num, width, HEAD: tl.constexpr, SIZE: tl.constexpr):
    """Return which of a row's tokens there are, and where their part of this head stands."""
    tokens = tl.arange(0, SIZE)[:, None]
    columns = tl.program_id(1) * HEAD + tl.arange(0, HEAD)[None, :]
    return tokens < num, (start + tokens) * width + columns


@triton.jit
def _load_row(qkv, start, num, width, HEAD: tl.constexpr, SIZE: tl.constexpr):
    """Return a row's queries, keys and values of this head."""
    here, place = _row_places(start, num, 3 * width, HEAD, SIZE)
    q = tl.load(qkv + place, mask=here, other=0.0)
    k = tl.load(qkv + place + width, mask=here, other=0.0)
    v = tl.load(qkv + place + 2 * width, mask=here, other=0.0)
    return q, k, v


@triton.jit
def _drawn(seed, dropout, SIZE: tl.constexpr):
    """Draw which weights of a row's table do not drop out; no row has more than 128 tokens."""
    tokens = tl.arange(0, SIZE)
    table = (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * 128
    return _kept(seed, (table + tokens[:, None]) * 128 + tokens[None, :], dropout)


@triton.jit
def _attend_row(
    qkv, out, seed, start, num, width, scale, dropout,
    DROPS: tl.constexpr, HEAD: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    q, k, v = _load_row(qkv, start, num, width, HEAD, SIZE)
    here, place = _row_places(start, num, width, HEAD, SIZE)
    p = _scores(q, k, num, scale, SIZE)
    if DROPS:
        p = tl.where(_drawn(seed, dropout, SIZE), p / (1 - dropout), 0.0)
    mixed = tl.dot(p.to(v.dtype), v).to(out.dtype.element_ty)
    tl.store(out + place, mixed, mask=here)


@triton.jit
def attend(
    qkv, bounds, out, seed, width, scale, dropout,
    DROPS: tl.constexpr, HEAD: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    # One program per row and head; what it works out is no larger than its own row needs. Rows of
    # more than 64 tokens have a kernel to themselves: it needs so many registers that few of its
    # programs run at once.
    row = tl.program_id(0)
    start = tl.load(bounds + row)
    num = tl.load(bounds + row + 1) - start
    if SHORT:
        if num > 32 and num <= 64:
            _attend_row(qkv, out, seed, start, num, width, scale, dropout, DROPS, HEAD, 64)
        elif num > 0 and num <= 32:
            _attend_row(qkv, out, seed, start, num, width, scale, dropout, DROPS, HEAD, 32)
    elif num > 64:
        _attend_row(qkv, out, seed, start, num, width, scale, dropout, DROPS, HEAD, 128)


@triton.jit
def _attend_row_backward(
    qkv, to_out, to_qkv, seed, start, num, width, scale, dropout,
    DROPS: tl.constexpr, HEAD: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    q, k, v = _load_row(qkv, start, num, width, HEAD, SIZE)
    here, place = _row_places(start, num, width, HEAD, SIZE)
    g = tl.load(to_out + place, mask=here, other=0.0)
    p = _scores(q, k, num, scale, SIZE)
    to_p = tl.dot(g, tl.trans(v))
    dropped = p
    if DROPS:
        kept = _drawn(seed, dropout, SIZE)
        dropped = tl.where(kept, p / (1 - dropout), 0.0)
        to_p = tl.where(kept, to_p / (1 - dropout), 0.0)
    to_v = tl.dot(tl.trans(dropped.to(g.dtype)), g)
    to_s = p * (to_p - tl.sum(to_p * p, axis=1)[:, None]) * scale
    to_s = to_s.to(q.dtype)
    to_q = tl.dot(to_s, k)
    to_k = tl.dot(tl.trans(to_s), q)
    kind = to_qkv.dtype.element_ty
    here, place = _row_places(start, num, 3 * width, HEAD, SIZE)
    tl.store(to_qkv + place, to_q.to(kind), mask=here)
    tl.store(to_qkv + place + width, to_k.to(kind), mask=here)
    tl.store(to_qkv + place + 2 * width, to_v.to(kind), mask=here)


@triton.jit
def attend_backward(
    qkv, bounds, to_out, to_qkv, seed, width, scale, dropout,
    DROPS: tl.constexpr, HEAD: tl.constexpr, SHORT: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    start = tl.load(bounds + row)
    num = tl.load(bounds + row + 1) - start
    if SHORT:
        if num > 32 and num <= 64:
            _attend_row_backward(
                qkv, to_out, to_qkv, seed, start, num, width, scale, dropout, DROPS, HEAD, 64
            )
        elif num > 0 and num <= 32:
            _attend_row_backward(
                qkv, to_out, to_qkv, seed, start, num, width, scale, dropout, DROPS, HEAD, 32
            )
    elif num > 64:
        _attend_row_backward(
            qkv, to_out, to_qkv, seed, start, num, width, scale, dropout, DROPS, HEAD, 128
        )


@triton.jit
def row_products(
    rows, partial, length, stride, programs, NUM_ROWS: tl.constexpr, BLOCK: tl.constexpr
):
    # Every two of up to four long rows, each read once; the sums of programs are added up later.
    program = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    aa = tl.zeros([BLOCK], tl.float32)
    ab, bb, ac, bc, cc, ad, bd, cd, dd = aa, aa, aa, aa, aa, aa, aa, aa, aa
    for start in range(program * BLOCK, length, programs * BLOCK):
        at = start + columns
        inside = at < length
        a = tl.load(rows + at, mask=inside, other=0.0)
        b = tl.load(rows + stride + at, mask=inside, other=0.0)
        aa += a * a
        ab += a * b
        bb += b * b
        if NUM_ROWS > 2:
            c = tl.load(rows + 2 * stride + at, mask=inside, other=0.0)
            ac += a * c
            bc += b * c
            cc += c * c
        if NUM_ROWS > 3:
            d = tl.load(rows + 3 * stride + at, mask=inside, other=0.0)
            ad += a * d
            bd += b * d
            cd += c * d
            dd += d * d
    _store_twice(partial + program * 16, 0, 0, aa)
    _store_twice(partial + program * 16, 0, 1, ab)
    _store_twice(partial + program * 16, 1, 1, bb)
    _store_twice(partial + program * 16, 0, 2, ac)
    _store_twice(partial + program * 16, 1, 2, bc)
    _store_twice(partial + program * 16, 2, 2, cc)
    _store_twice(partial + program * 16, 0, 3, ad)
    _store_twice(partial + program * 16, 1, 3, bd)
    _store_twice(partial + program * 16, 2, 3, cd)
    _store_twice(partial + program * 16, 3, 3, dd)


@triton.jit
def _store_twice(table, i: tl.constexpr, j: tl.constexpr, products):
    """Store a sum in a table of 4 by 4, on both sides of its diagonal."""
    total = tl.sum(products)
    tl.store(table + 4 * i + j, total)
    tl.store(table + 4 * j + i, total)


@triton.jit
def mix_rows(rows, weights, out, length, stride, NUM_ROWS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < length
    total = tl.load(weights) * tl.load(rows + at, mask=inside, other=0.0)
    for i in tl.static_range(1, NUM_ROWS):
        total += tl.load(weights + i) * tl.load(rows + i * stride + at, mask=inside, other=0.0)
    tl.store(out + at, total, mask=inside)
