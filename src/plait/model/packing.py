"""Convert padded rows to one long row of real tokens, and back.

If lengths differ, most of a padded batch can be padding. In packed form the tokens of all rows are
concatenated, [room, width], so that token-wise operations skip the padding. In half precision on a
GPU, attention gets the row boundaries too: short rows use plait's Triton kernel, longer rows use
FlashAttention-2 (Dao 2023). Otherwise attention gets padded rows.
Nothing here waits for the device: the caller gives `room`, and unused places hold copies of the
first token, in separate rows whose results are not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F

from plait.model.kernels import attend, can_attend, has_bf16

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Packing:
    """Where the tokens of a padded batch stand when packed."""

    shape: tuple[int, int]
    """Rows and length of the padded batch."""
    source: Tensor
    """int64 [room]: the padded place, row * length + position, of each packed token."""
    target: Tensor
    """int64 [room]: the same, but rows * length, one past the end, for what only fills up."""
    mask: Tensor
    """bool [rows, length], True at real tokens."""
    bounds: Tensor
    """int32 [sequences + 1]: where each row begins; after the rows, those that fill up."""

    @classmethod
    def of(cls, mask: Tensor, room: int) -> Packing:
        """Find the places of the real tokens of a batch, at most `room` of them."""
        rows, length = mask.shape
        device = mask.device
        places = torch.arange(rows * length, device=device)
        flat = mask.flatten()
        slot = torch.where(flat, flat.cumsum(0) - 1, room)  # padding goes past the end
        end = rows * length
        target = torch.full((room + 1,), end, device=device).scatter(0, slot, places)[:room]
        ends = mask.sum(dim=1).cumsum(0)
        # The fill is cut into rows no longer than the others: attention gets the maximum length
        # and does not write results beyond it.
        fillers = torch.arange(1, -(-room // length) + 1, device=device) * length
        bounds = torch.cat([ends.new_zeros(1), ends, (ends[-1] + fillers).clamp(max=room)])
        return cls((rows, length), target % end, target, mask, bounds.int())

    def pack(self, padded: Tensor) -> Tensor:
        """Turn [rows, length, ...] into [room, ...]."""
        flat = padded.flatten(0, 1)
        if not flat.requires_grad:
            return flat.index_select(0, self.source)
        packed: Tensor = _Pack.apply(flat, self.source, self.target)  # type: ignore[no-untyped-call]
        return packed

    def unpack(self, packed: Tensor) -> Tensor:
        """Turn [room, width] into [rows, length, width], 0 at padding."""
        rows, length = self.shape
        padded = packed.new_zeros(rows * length + 1, packed.shape[-1])
        filled: Tensor = padded.index_copy(0, self.target, packed)[:-1]
        return filled.view(rows, length, -1)

    def attend(
        self, qkv: Tensor, num_heads: int, dropout: float, seed: Tensor | None = None
    ) -> Tensor:
        """Let the tokens of each row look at one another: [room, 3 * width] to [room, width].

        Where there is a `seed`, one number on the device, it may say what drops out.
        """
        if can_attend(qkv, num_heads, self.shape[1]) and (seed is not None or dropout == 0):
            return attend(qkv, self.bounds, self.shape[1], num_heads, dropout, seed)
        split = qkv.unflatten(-1, (3, num_heads, -1))  # [room, 3, heads, width / heads]
        if not _has_flash(split):
            return self._attend_padded(qkv, num_heads, dropout)
        query, key, value = split.unbind(1)
        mixed: Tensor = torch.ops.aten._flash_attention_forward(
            query,
            key,
            value,
            self.bounds,
            self.bounds,
            self.shape[1],
            self.shape[1],
            dropout,
            False,
            False,
        )[0]
        return mixed.flatten(1)

    def _attend_padded(self, qkv: Tensor, num_heads: int, dropout: float) -> Tensor:
        # [rows, length, 3 * width] -> three of [rows, heads, length, width / heads]
        padded = self.unpack(qkv).unflatten(-1, (3, num_heads, -1))
        query, key, value = padded.permute(2, 0, 3, 1, 4)
        mask = self.mask[:, None, None, :]
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
        return self.pack(mixed.transpose(1, 2).flatten(2))


class _Pack(torch.autograd.Function):
    """index_select whose gradient is copied to where it belongs, not added up place by place."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, source: Tensor, target: Tensor) -> Tensor:
        ctx.save_for_backward(target)
        ctx.num_places = len(flat)
        return flat.index_select(0, source)

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor, None, None]:
        (target,) = ctx.saved_tensors
        padded = outer[0].new_zeros(ctx.num_places + 1, *outer[0].shape[1:])
        return padded.index_copy_(0, target, outer[0])[:-1], None, None


def _has_flash(query: Tensor) -> bool:
    """Say whether attention over packed rows is to be had."""
    width = query.shape[-1]
    return (
        query.is_cuda
        and query.dtype in (torch.bfloat16, torch.float16)
        and width % 8 == 0
        and width <= 256
        and torch.backends.cuda.is_flash_attention_available()
        and has_bf16(query.device)
    )
