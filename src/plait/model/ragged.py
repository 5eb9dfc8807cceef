"""Padded rows become one row of real tokens and back, so that layers work on no padding.

Batches come in the schedule's order, so texts of all lengths meet and, where nothing sorts
them, a third of the places or more are padding. Only attention needs tokens in rows; all
else treats each by itself. For CPUs: finding the real tokens asks for values, which a CUDA
graph does not allow, and a GPU loses less to padding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

if TYPE_CHECKING:
    from plait.model.bert import Layer


class _Gather(torch.autograd.Function):
    """[places, width] -> [tokens, width]; the gradient goes the way back."""

    @staticmethod
    def forward(ctx: Any, padded: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.num_places = len(padded)
        return padded.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        back: Tensor = _Scatter.apply(gradients[0], index, ctx.num_places)  # type: ignore[no-untyped-call]
        return back, None


class _Scatter(torch.autograd.Function):
    """[tokens, width] -> [places, width], 0 at padding; the gradient goes the way back."""

    # Every token has one place, so copies do; index_select's own gradient adds, row by row.

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, index: Tensor, num_places: int) -> Tensor:
        ctx.save_for_backward(index)
        return tokens.new_zeros(num_places, tokens.shape[1]).index_copy_(0, index, tokens)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (index,) = ctx.saved_tensors
        back: Tensor = _Gather.apply(gradients[0], index)  # type: ignore[no-untyped-call]
        return back, None, None


@dataclass(frozen=True, slots=True)
class Places:
    """Where the real tokens of a padded batch are."""

    index: Tensor
    """[tokens]: place of each in the flattened rows."""
    rows: int
    length: int

    @classmethod
    def of(cls, mask: Tensor) -> Places | None:
        """Find them in a mask [rows, length] on a CPU; None where nothing is padding."""
        index = mask.flatten().nonzero().squeeze(1)
        return None if len(index) == mask.numel() else cls(index, *mask.shape)

    def gather(self, padded: Tensor) -> Tensor:
        """Turn [rows, length, width] into [tokens, width]."""
        flat: Tensor = _Gather.apply(padded.flatten(0, 1), self.index)  # type: ignore[no-untyped-call]
        return flat

    def scatter(self, tokens: Tensor) -> Tensor:
        """Turn [tokens, width] into [rows, length, width], 0 at padding."""
        flat: Tensor = _Scatter.apply(tokens, self.index, self.rows * self.length)  # type: ignore[no-untyped-call]
        return flat.view(self.rows, self.length, -1)

    def drop(self, tokens: Tensor, p: float, *, training: bool) -> Tensor:
        """Apply dropout, drawing for padding as well: each token gets what it would in rows."""
        if not training or p == 0:
            return tokens
        noise = F.dropout(tokens.new_ones(self.rows * self.length, tokens.shape[1]), p)
        return tokens * noise.index_select(0, self.index)


def run_layer(layer: Layer, tokens: Tensor, mask: Tensor, places: Places) -> Tensor:
    """Do what a BERT's layer does, on [tokens, width]; mask [rows, 1, 1, length]."""
    attention, training = layer.attention, layer.training
    qkv = places.scatter(attention.qkv(tokens))
    mixed = attention.out(places.gather(attention.mix(qkv, mask)))
    middle = layer.attention_norm(tokens + places.drop(mixed, layer.dropout.p, training=training))
    down = layer.down(layer.activation(layer.up(middle)))
    total = middle + places.drop(down, layer.dropout.p, training=training)
    return layer.output_norm(total)  # type: ignore[no-any-return]
