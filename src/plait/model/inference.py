"""A trained BERT becomes one that only answers, on a CPU: the same layers, laid out for speed.

The Linear modules of the layers are replaced by products whose weights are stored in the layout of
the CPU's kernels, in fp32, bf16 or int8. The tokens of all rows are concatenated, so that padding
costs no time. The last layer computes only the first token of each row if the others are not
needed. Tasks with adapters use the padded BERT with the same products.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plait.errors import first_line
from plait.model.bert import ACTIVATIONS, Bert
from plait.model.interface import Adapter, Encoded, Encoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.model.bert import Layer
    from plait.types import Tokens

Form = Literal["fp32", "bf16", "int8"]

FUSED = {ACTIVATIONS["gelu"]: ("gelu", "none"), ACTIVATIONS["relu"]: ("relu", "")}
FUSED |= {ACTIVATIONS[name]: ("gelu", "tanh") for name in ("gelu_new", "gelu_pytorch_tanh")}
"""Activations that oneDNN applies to a product as it makes it, and its names for them."""

TINY = 1e-30
"""Keeps what is all zeros from dividing by 0."""

ALIKE = 0.8
"""How long a row is, as a part of the longest, that is padded to it for attention."""


@cache
def why_not(form: Form) -> str:
    """Say why a precision would be no gain on this CPU, or not work; empty where it is there."""
    has = {"fp32": (), "bf16": ("avx512_bf16", "amx_tile"), "int8": ("vnni",)}[form]
    if has and not any(getattr(torch.cpu, f"_is_{name}_supported", bool)() for name in has):
        return f"the CPU has no instructions for it that torch knows ({' or '.join(has)})"
    try:
        product = pack_linear(torch.eye(2), torch.zeros(2), form)(torch.ones(1, 2))
    except (AttributeError, RuntimeError) as error:
        return f"this torch has no such products: {first_line(error)}"
    return "" if bool((product - 1).abs().max() < 0.01) else "this torch's products are wrong"


class PackedLinear(nn.Module):
    """A Linear whose weight oneDNN has put into its own order once, not at every call."""

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor,
        dtype: torch.dtype,
        activation: tuple[str, str] = ("none", ""),
    ):
        super().__init__()
        self.dtype, self.bias, self.activation = dtype, nn.Buffer(bias.to(dtype)), activation
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Turn [..., inputs] into [..., outputs] of the same type, whatever it multiplies in."""
        name, variant = self.activation
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            x.to(self.dtype), self.weight, self.bias, name, [], variant
        )
        return product.to(x.dtype)


class Int8Linear(nn.Module):
    """A Linear whose weight and input are whole numbers from -127 to 127, times a scale.

    There is one scale per output for the weights and one per token for the input
    (LLM.int8()'s vector-wise quantization, Dettmers et al. 2022, without the outliers kept
    apart). So the result of a token does not depend on other tokens of the batch.
    """

    def __init__(self, weight: Tensor, bias: Tensor):
        super().__init__()
        self.bias = nn.Buffer(bias)
        self.scales = nn.Buffer(weight.abs().amax(1).clamp(min=TINY) / 127)
        self.zeros = nn.Buffer(torch.zeros(len(weight), dtype=torch.long))
        whole = (weight / self.scales.unsqueeze(1)).round().to(torch.int8)
        self.weight = torch.ops.onednn.qlinear_prepack(whole, None)

    def forward(self, x: Tensor) -> Tensor:
        """Turn [..., inputs] into [..., outputs]."""
        flat = x.flatten(0, -2)
        scale = flat.abs().amax(-1, keepdim=True).clamp_(min=TINY)
        whole = (flat * (127 / scale)).round_().to(torch.int8)
        # Unsigned, with 128 for 0: signed input sends oneDNN to its slowest product.
        whole = whole.view(torch.uint8).add_(128)
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            *(whole, 1 / 127, 128, self.weight, self.scales, self.zeros, None),
            *(1.0, 0, torch.float32, "none", [], ""),
        )
        outputs: Tensor = torch.addcmul(self.bias, product, scale)
        return outputs.view(*x.shape[:-1], -1)


@dataclass(frozen=True, slots=True)
class Span:
    """Rows of like length that stand next to each other, and are padded for attention alone."""

    tokens: slice
    """Where theirs stand among all."""
    rows: slice
    """Which they are."""
    length: int
    mask: Tensor | None
    """bool [rows, 1, 1, length], True at real tokens; None where all are."""
    places: Tensor | None
    """int64 [rows * length]: which of the tokens stands where, any at padding."""

    @classmethod
    def of(cls, start: int, first: int, counts: list[int]) -> Span:
        """Describe rows that have so many tokens each, the longest first."""
        tokens, rows = slice(start, start + sum(counts)), slice(first, first + len(counts))
        length = counts[0]
        if counts[-1] == length:
            return cls(tokens, rows, length, None, None)
        lengths = torch.tensor(counts).unsqueeze(1)
        place = torch.arange(length)
        mask = place < lengths
        places = (lengths.cumsum(0) - lengths) + torch.minimum(place, lengths - 1)
        return cls(tokens, rows, length, mask[:, None, None], places.flatten())

    def pad(self, packed: Tensor) -> Tensor:
        """Turn all tokens, [tokens, width], into these rows, [rows, length, width]."""
        mine = packed[self.tokens]
        padded = mine if self.places is None else mine.index_select(0, self.places)
        return padded.view(-1, self.length, packed.shape[1])

    def pack(self, padded: Tensor) -> Tensor:
        """Turn these rows, [rows, length, width], into their tokens, [tokens, width]."""
        return padded.flatten(0, 1) if self.mask is None else padded[self.mask[:, 0, 0]]


@dataclass(frozen=True, slots=True)
class Packed:
    """Positions of a padded batch's tokens when they are concatenated, the longest row first.

    The numbers of tokens and rows are rounded up: oneDNN builds a new product for every new
    number, which takes milliseconds and a megabyte. The fill is copies of the first token, which
    are not used.
    """

    shape: tuple[int, int]
    """Rows and length of the padded batch."""
    num_tokens: int
    order: Tensor
    """int64 [rows]: which row of the batch is which here."""
    source: Tensor
    """int64 [room]: the padded place, row * length + position, of each token."""
    starts: Tensor
    """int64 [room for rows]: where each row begins."""
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, mask: Tensor) -> Packed:
        """Find the places of the real tokens of a batch, of which each row has some."""
        length = mask.shape[1]
        counts, order = mask.sum(1).sort(descending=True, stable=True)
        row, position = mask[order].nonzero(as_tuple=True)
        return cls(
            (len(mask), length),
            len(row),
            order,
            _fill_up(order[row] * length + position),
            _fill_up(counts.cumsum(0) - counts),
            tuple(_spans(counts.tolist())),
        )

    def attend(self, qkv: Tensor, num_heads: int) -> Tensor:
        """Let the tokens of each row look at one another: [room, 3 * width] to [room, width]."""
        parts = []
        for span in self.spans:
            query, key, value = _heads(span.pad(qkv), 3, num_heads)
            parts.append(span.pack(_mix(query, key, value, span.mask).to(qkv.dtype)))
        return _fill_up(torch.cat(parts))

    def attend_first(self, query: Tensor, key_value: Tensor, num_heads: int) -> Tensor:
        """Let the first token of each row look at all of it: [room, width] to the same."""
        parts = []
        for span in self.spans:
            (mine,) = _heads(query[span.rows].unsqueeze(1), 1, num_heads)
            key, value = _heads(span.pad(key_value), 2, num_heads)
            parts.append(_mix(mine, key, value, span.mask).squeeze(1).to(query.dtype))
        return _fill_up(torch.cat(parts))


def _fill_up(some: Tensor) -> Tensor:
    """Repeat the first of some up to a number whose steps are a sixteenth of it, or 8."""
    step = 1 << max(3, len(some).bit_length() - 5)
    more = -len(some) % step
    return torch.cat([some, some[:1].expand(more, *some.shape[1:])]) if more else some


def _spans(counts: list[int]) -> Iterator[Span]:
    start = first = 0
    while first < len(counts):
        last = first
        while last < len(counts) and counts[last] >= ALIKE * counts[first]:
            last += 1
        yield Span.of(start, first, counts[first:last])
        start, first = start + sum(counts[first:last]), last


def _heads(padded: Tensor, num_parts: int, num_heads: int) -> tuple[Tensor, ...]:
    """Split [rows, length, parts * width] into parts of [rows, heads, length, width / heads].

    They are fp32: in bf16, attention over so few tokens takes longer on CPUs, not less long.
    """
    split = padded.float().unflatten(-1, (num_parts, num_heads, -1))
    parts: tuple[Tensor, ...] = split.permute(2, 0, 3, 1, 4).unbind()
    return parts


def _mix(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Return what each query sees, heads side by side: [rows, queries, width]."""
    mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    return mixed.transpose(1, 2).flatten(2)


class AnsweringBert(Encoder):
    """A BERT laid out for answering."""

    has_pooler = True
    takes_adapters = True

    def __init__(self, bert: Bert, form: Form, *, first_only: bool):
        super().__init__()
        self.config, self.width, self.num_layers = bert.config, bert.width, bert.num_layers
        self.num_heads, self.max_positions, self.pad_id = (
            bert.num_heads,
            bert.max_positions,
            bert.pad_id,
        )
        self.bert = bert
        bert.leaves_padding_out = False  # its own way of doing so is for training
        # Products of bf16 are given bf16 and give it; sums and norms around them are in fp32.
        self.dtype = torch.bfloat16 if form == "bf16" else torch.float32
        self.query: nn.Module | None = None
        if first_only:
            qkv = cast("Layer", bert.layers[-1]).attention.qkv
            self.query = pack_linear(qkv.weight[: bert.width], qkv.bias[: bert.width], form)
            self.key_value = pack_linear(qkv.weight[bert.width :], qkv.bias[bert.width :], form)
        for layer in bert.layers:
            _pack_layer(layer, form)

    def word_table(self) -> Tensor:
        """Return the word embeddings themselves, [vocabulary, width]."""
        return self.bert.word_table()

    def word_embeddings(self, ids: Tensor) -> Tensor:
        """Look up [rows, length] ids in the word table alone: [rows, length, width]."""
        return self.bert.word_embeddings(ids)

    def layer_of(self, name: str) -> int:
        """Say where a parameter sits."""
        return self.bert.layer_of(name.removeprefix("bert."))

    def forward(
        self,
        tokens: Tokens,
        embeddings: Tensor | None = None,
        adapter: Adapter | None = None,
        shift: Tensor | None = None,
    ) -> Encoded:
        """Encode a batch; of the last layer the first token alone, where no other is read."""
        if adapter is not None or embeddings is not None or shift is not None:
            return self.bert(tokens, embeddings, adapter, shift)  # type: ignore[no-any-return]
        packed = Packed.of(tokens.mask)
        ids, types = (part.flatten()[packed.source] for part in (tokens.ids, tokens.types))
        places = packed.source % packed.shape[1]
        hidden = self.bert.embeddings(self.bert.word_embeddings(ids), types, places)
        *earlier, last = cast("list[Layer]", list(self.bert.layers))
        for layer in earlier:
            hidden = self._read(layer, hidden, packed)
        rows, length = packed.shape
        if self.query is None:
            found, count = self._read(last, hidden, packed), packed.num_tokens
            padded = found.new_zeros(rows * length, self.width)
            padded.index_copy_(0, packed.source[:count], found[:count])
        else:
            found, length = self._read_first(last, hidden, packed)[:rows], 1
            padded = torch.empty_like(found).index_copy_(0, packed.order, found)
        outputs = padded.view(rows, length, self.width)
        return Encoded(outputs, (), self.bert.pooler(outputs))

    def _read(self, layer: Layer, hidden: Tensor, packed: Packed) -> Tensor:
        """Turn [room, width] into the same shape, as the layer does."""
        attention = layer.attention
        mixed = packed.attend(attention.qkv(hidden.to(self.dtype)), attention.num_heads)
        return self._finish(layer, hidden, mixed)

    def _read_first(self, layer: Layer, hidden: Tensor, packed: Packed) -> Tensor:
        """Turn [room, width] into the first token of each row, [room for rows, width]."""
        assert self.query is not None
        first, half = hidden[packed.starts], hidden.to(self.dtype)
        query = self.query(first.to(self.dtype))
        mixed = packed.attend_first(query, self.key_value(half), layer.attention.num_heads)
        return self._finish(layer, first, mixed)

    def _finish(self, layer: Layer, hidden: Tensor, mixed: Tensor) -> Tensor:
        middle = layer.attention_norm(hidden + layer.attention.out(mixed))
        inner = layer.activation(layer.up(middle.to(self.dtype)))
        return layer.output_norm(middle + layer.down(inner))  # type: ignore[no-any-return]


def pack(encoder: Encoder, form: Form, *, first_only: bool) -> AnsweringBert | None:
    """Lay out plait's own BERT for answering; no other can be. The BERT itself is used up."""
    if not isinstance(encoder, Bert) or why_not(form):
        return None
    return AnsweringBert(encoder, form, first_only=first_only)


def _pack_layer(layer: Any, form: Form) -> None:
    """Exchange the Linears of a BERT's layer, in place."""
    attention = layer.attention
    attention.qkv = pack_linear(attention.qkv.weight, attention.qkv.bias, form)
    attention.out = pack_linear(attention.out.weight, attention.out.bias, form)
    fused = FUSED.get(layer.activation)
    if form == "bf16" and fused is not None:  # in fp32 it is no faster, and rounds otherwise
        up = PackedLinear(layer.up.weight.detach(), layer.up.bias.detach(), torch.bfloat16, fused)
        layer.up, layer.activation = up, nn.Identity()
    else:
        layer.up = pack_linear(layer.up.weight, layer.up.bias, form)
    layer.down = pack_linear(layer.down.weight, layer.down.bias, form)


def pack_linear(weight: Tensor, bias: Tensor, form: Form) -> nn.Module:
    """Make the product of a Linear's weight [outputs, inputs] and bias."""
    weight, bias = weight.detach().contiguous(), bias.detach()
    if form == "int8":
        return Int8Linear(weight, bias)
    return PackedLinear(weight, bias, torch.float32 if form == "fp32" else torch.bfloat16)
