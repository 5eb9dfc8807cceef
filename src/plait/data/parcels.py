"""What travels to the device for one batch, and how it becomes the batch there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor
from torch.nn.functional import pad

from plait.data.buckets import round_up
from plait.types import Batch, Tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import numpy as np
    import numpy.typing as npt
    import torch


@dataclass(frozen=True, slots=True)
class Parcel:
    """A batch on its way: for data that lives on the device, its row numbers are enough."""

    inputs: tuple[Tensor, ...]
    """What travels; on the CPU, or on the device already."""
    unpack: Callable[..., Batch]
    """The inputs, once on the device, become the batch; nothing in it waits for the device."""
    key: Hashable
    """Parcels of one task with equal keys can go through one captured step."""
    num_examples: int
    lengths: npt.NDArray[np.int64] | None = None
    """Length of every input if `unpack` accepts another `length` and `total`; else None."""

    @classmethod
    def of(cls, batch: Batch) -> Parcel:
        """Pack a batch without more padding."""
        tokens, labels = batch.tokens, batch.labels
        own = () if labels is None else (labels,)
        inputs = (tokens.ids, tokens.types, tokens.mask, *own)

        def unpack(ids: Tensor, types: Tensor, mask: Tensor, *labels: Tensor) -> Batch:
            own = Tokens(ids, types, mask, tokens.total)
            return Batch(own, labels[0] if labels else None, batch.whole)

        key = (*(tuple(part.shape) for part in inputs), tokens.total)
        return cls(inputs, unpack, key, batch.num_examples)

    @classmethod
    def filled(cls, batch: Batch, pad_id: int, most: int) -> Parcel:
        """Pack a batch on the CPU, padded to one of a few sizes, at most `most` tokens long."""
        tokens = batch.tokens
        more = (0, min(round_up(tokens.ids.shape[1]), most) - tokens.ids.shape[1])
        filled = Tokens(
            pad(tokens.ids, more, value=pad_id),
            pad(tokens.types, more),
            pad(tokens.mask, more),
            round_up(int(tokens.mask.sum())),
        )
        return cls.of(Batch(filled, batch.labels, batch.whole))

    def batch(self, device: torch.device) -> Batch:
        """Make the batch on a device."""
        return self.unpack(*(part.to(device, non_blocking=True) for part in self.inputs))
