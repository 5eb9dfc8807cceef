"""Padded rows become one long row of real tokens, and back.

Where lengths differ, most of a padded batch can be padding. Packed, the tokens of all rows
stand end to end, [room, width], and everything that treats each token by itself does so only
for real ones. In half precision on a GPU attention, too, is told where each row begins (Dao
2023, FlashAttention-2, over sequences of different lengths); elsewhere it sees padded rows.
Nothing here waits for the device: the room is given, and what is left of it holds copies of
the first token, in rows of their own that nobody reads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

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
        # What fills up is cut into rows no longer than the rest: attention is told how long
        # the longest is, and leaves what is beyond that as it was in memory.
        fillers = torch.arange(1, -(-room // length) + 1, device=device) * length
        bounds = torch.cat([ends.new_zeros(1), ends, (ends[-1] + fillers).clamp(max=room)])
        return cls((rows, length), target % end, target, mask, bounds.int())

    def pack(self, padded: Tensor) -> Tensor:
        """Turn [rows, length, ...] into [room, ...]."""
        return padded.flatten(0, 1).index_select(0, self.source)

    def unpack(self, packed: Tensor) -> Tensor:
        """Turn [room, width] into [rows, length, width], 0 at padding."""
        rows, length = self.shape
        padded = packed.new_zeros(rows * length + 1, packed.shape[-1])
        filled: Tensor = padded.index_copy(0, self.target, packed)[:-1]
        return filled.view(rows, length, -1)

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        """Let the tokens of each row look at one another: [room, heads, width] each."""
        if not _has_flash(query):
            return self._attend_padded(query, key, value, dropout)
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
        return mixed

    def _attend_padded(self, query: Tensor, key: Tensor, value: Tensor, dropout: float) -> Tensor:
        padded = (self.unpack(part.flatten(1)) for part in (query, key, value))
        heads = query.shape[1]
        # [rows, length, heads * width] -> [rows, heads, length, width]
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in padded)
        mask = self.mask[:, None, None, :]
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
        return self.pack(mixed.transpose(1, 2))


def _has_flash(query: Tensor) -> bool:
    """Say whether attention over packed rows is to be had."""
    width = query.shape[-1]
    return (
        query.is_cuda
        and query.dtype in (torch.bfloat16, torch.float16)
        and width % 8 == 0
        and width <= 256
        and torch.backends.cuda.is_flash_attention_available()
    )
