"""Adapters: a few parameters of a task's own inside the shared encoder.

A task with an adapter sees the encoder bent its way; every other task sees it as it is. With
`touch_encoder = false` beside it the task trains its adapter and head alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from plait.model.bert import Bert
from plait.model.interface import Adapter, LayerAdapter
from plait.registry import Registry

if TYPE_CHECKING:
    from plait.model.bert import Layer
    from plait.model.interface import Encoder

ADAPTERS: Registry[Adapter] = Registry(
    "adapter", "what a task adds to the encoder's layers, trained by it alone"
)

Target = Literal["query", "key", "value", "output"]


def _check_dropout(dropout: float) -> None:
    if not 0 <= dropout < 1:
        raise ValueError(f"dropout must be 0 or more and below 1, not {dropout}")


@ADAPTERS.register("lora")
class LoRA(Adapter):
    """LoRA (Hu et al. 2021): low-rank updates to the attention's projections.

    A projection W of every layer becomes W + (alpha / rank) B A, A of shape [rank, width] and B
    of shape [width, rank]. `targets` names the projections; the paper's choice is query and
    value. B starts at 0, so the first step sees the encoder as it was. A starts Gaussian; the
    paper names no variance, and ours is that of the authors' code, 1 / (3 width). `dropout`
    falls on what A reads.
    """

    def __init__(
        self,
        width: int,
        num_layers: int,
        num_heads: int,  # noqa: ARG002
        *,
        rank: int = 8,
        alpha: float = 16.0,
        dropout: float = 0.0,
        targets: tuple[Target, ...] = ("query", "value"),
    ):
        super().__init__()
        if rank < 1:
            raise ValueError(f"rank must be 1 or more, not {rank}")
        if alpha <= 0:
            raise ValueError(f"alpha must be above 0, not {alpha}")
        if not targets or len(set(targets)) < len(targets):
            raise ValueError(f"targets must name different projections, not {list(targets)}")
        _check_dropout(dropout)
        self.layers = nn.ModuleList(
            _LoRALayer({name: _LowRank(width, rank, alpha / rank, dropout) for name in targets})
            for _ in range(num_layers)
        )

    def at(self, layer: int) -> LayerAdapter:
        """Return the updates of one layer."""
        found = self.layers[layer]
        assert isinstance(found, _LoRALayer)
        return found

    @torch.no_grad()
    def merge(self, encoder: Encoder) -> bool:
        """Add the updates to the projections, which then need no adapter."""
        if not isinstance(encoder, Bert):
            return False
        for layer, adapted in zip(encoder.layers, self.layers, strict=True):
            attention = cast("Layer", layer).attention
            query, key, value = attention.qkv.weight.chunk(3)
            projections = {
                "query": query,
                "key": key,
                "value": value,
                "output": attention.out.weight,
            }
            for name, update in cast("_LoRALayer", adapted).updates.items():
                projections[name] += cast("_LowRank", update).matrix()
        return True


class _LoRALayer(nn.Module, LayerAdapter):
    """The updates of one layer's projections, by their names."""

    def __init__(self, updates: dict[str, _LowRank]):
        super().__init__()
        self.updates = nn.ModuleDict(updates)

    def attention(self, qkv: Tensor, hidden: Tensor) -> Tensor:
        parts = zip(("query", "key", "value"), qkv.chunk(3, dim=-1), strict=True)
        return torch.cat([self._add(name, part, hidden) for name, part in parts], dim=-1)

    def output(self, out: Tensor, mixed: Tensor) -> Tensor:
        return self._add("output", out, mixed)

    def _add(self, name: str, value: Tensor, read: Tensor) -> Tensor:
        # The plain projection's type stands: under autocast it is the smaller one.
        return value + self.updates[name](read).to(value.dtype) if name in self.updates else value


class _LowRank(nn.Module):
    """x -> scale * B A x."""

    def __init__(self, width: int, rank: int, scale: float, dropout: float):
        super().__init__()
        self.down = nn.Parameter(torch.empty(rank, width))
        self.up = nn.Parameter(torch.zeros(width, rank))
        self.scale, self.dropout = scale, nn.Dropout(dropout)
        nn.init.normal_(self.down, std=1 / math.sqrt(3 * width))

    def matrix(self) -> Tensor:
        """Return what it adds to a projection, [width, width]."""
        return self.scale * self.up @ self.down

    def forward(self, read: Tensor) -> Tensor:
        return self.scale * F.linear(F.linear(self.dropout(read), self.down), self.up)


@ADAPTERS.register("pal")
class PAL(Adapter):
    """Projected attention layers (Stickland and Murray 2019): a small attention beside each layer.

    h' = LN(h + SA(h) + TS(h)) with TS(h) = V_D g(V_E h): the layer's input h, narrowed to `size`,
    goes through a multi-head attention g of the layer's own and is widened again; the sum
    enters the layer's last LayerNorm, outside its dropout. V_E and V_D serve all layers of a
    task. As in the paper g has no output projection, and weights start as BERT's do (normal,
    deviation 0.02), so that the first step already differs a little from the plain encoder.

    `size` unless set is 204 for a width of 768, and in proportion for others, as the nearest
    multiple of `heads`; `heads` unless set are the encoder's. `dropout` falls on the attention's
    weights. Where the authors' code departs from the paper's formula (a GELU after V_D, biases,
    6 heads) we keep to the formula; `heads = 6` gives the code's heads.
    """

    def __init__(
        self,
        width: int,
        num_layers: int,
        num_heads: int,
        *,
        size: int | None = None,
        heads: int | None = None,
        dropout: float = 0.1,
    ):
        super().__init__()
        heads = num_heads if heads is None else heads
        if heads < 1:
            raise ValueError(f"heads must be 1 or more, not {heads}")
        size = heads * max(1, round(width * 204 / 768 / heads)) if size is None else size
        if size < 1 or size % heads:
            raise ValueError(f"size = {size} is not divisible by {heads} heads")
        _check_dropout(dropout)
        self.shrink = nn.Parameter(torch.empty(size, width))  # V_E
        self.grow = nn.Parameter(torch.empty(width, size))  # V_D
        self.attentions = nn.ModuleList(
            _SmallAttention(size, heads, dropout) for _ in range(num_layers)
        )
        for weight in (self.shrink, self.grow):
            nn.init.normal_(weight, std=0.02)

    def at(self, layer: int) -> LayerAdapter:
        """Return the attention beside one layer."""
        return _PALLayer(self.shrink, self.attentions[layer], self.grow)


class _SmallAttention(nn.Module):
    """Multi-head attention without an output projection."""

    def __init__(self, size: int, heads: int, dropout: float):
        super().__init__()
        self.qkv = nn.Parameter(torch.empty(3 * size, size))
        self.heads, self.dropout = heads, dropout
        nn.init.normal_(self.qkv, std=0.02)

    def forward(self, small: Tensor, mask: Tensor) -> Tensor:
        qkv = F.linear(small, self.qkv).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        p = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=p)
        return mixed.transpose(1, 2).flatten(2)


@dataclass(frozen=True, slots=True, eq=False)
class _PALLayer(LayerAdapter):
    """TS of one layer; no module, so that what layers share is saved once."""

    shrink: Tensor
    attention_of_layer: nn.Module
    grow: Tensor

    def after(self, total: Tensor, hidden: Tensor, mask: Tensor) -> Tensor:
        mixed = self.attention_of_layer(F.linear(hidden, self.shrink), mask)
        return total + F.linear(mixed, self.grow)


@ADAPTERS.register("top")
class TopLayers(Adapter):
    """Whole layers of the task's own above the encoder's last.

    The other place for a task's parameters in Stickland and Murray 2019, at the top of the encoder:
    attention among the tokens, then a feed-forward net on each, `layers` times, before the pooling.
    Each half adds to its input what it makes of it after a LayerNorm, and begins by adding 0, so
    that the first step sees the encoder as it was. The paper narrows what its layers see, as in
    pal; ours are whole.

    `inner` is the width inside the feed-forward net, four times the encoder's unless set; `heads`
    unless set are the encoder's. `dropout` falls on the attention's weights and on what each half
    adds.
    """

    def __init__(
        self,
        width: int,
        num_layers: int,  # noqa: ARG002
        num_heads: int,
        *,
        layers: int = 1,
        inner: int | None = None,
        heads: int | None = None,
        dropout: float = 0.1,
    ):
        super().__init__()
        inner, heads = 4 * width if inner is None else inner, num_heads if heads is None else heads
        for name, value in (("layers", layers), ("inner", inner), ("heads", heads)):
            if value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        if width % heads:
            raise ValueError(f"a width of {width} is not divisible by {heads} heads")
        _check_dropout(dropout)
        self.layers = nn.ModuleList(_TopLayer(width, inner, heads, dropout) for _ in range(layers))

    def at(self, layer: int) -> LayerAdapter:  # noqa: ARG002
        """Leave the encoder's own layers alone."""
        return LayerAdapter()

    def finish(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Go through the layers."""
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return hidden


class _TopLayer(nn.Module):
    """A layer whose norms come first (Xiong et al. 2020), so that it can begin as the identity."""

    def __init__(self, width: int, inner: int, heads: int, dropout: float):
        super().__init__()
        self.attention_norm = nn.LayerNorm(width, eps=1e-12)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.heads, self.dropout = heads, nn.Dropout(dropout)
        for part in (self.qkv, self.up):
            nn.init.normal_(part.weight, std=0.02)
        nn.init.zeros_(self.up.bias)
        for part in (self.out, self.down):
            nn.init.zeros_(part.weight)
            nn.init.zeros_(part.bias)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        qkv = self.qkv(self.attention_norm(hidden)).unflatten(-1, (3, self.heads, -1))
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        p = self.dropout.p if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=p)
        middle = hidden + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        inner = F.gelu(self.up(self.norm(middle)))
        total: Tensor = middle + self.dropout(self.down(inner))
        return total
