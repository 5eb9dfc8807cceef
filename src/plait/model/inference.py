"""A trained BERT becomes one that only answers, on a CPU: the same layers, laid out for speed.

The Linears of the layers are exchanged for products whose weights are stored as the CPU's
kernels read them, in fp32, bf16 or int8, and the last layer works on the first token alone
where nobody reads the others. Everything else, adapters included, is the BERT's own.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from plait.model.bert import Bert

if TYPE_CHECKING:
    from plait.model.bert import Layer
    from plait.model.interface import Encoder, LayerAdapter

Form = Literal["fp32", "bf16", "int8"]

TINY = 1e-30
"""Keeps what is all zeros from dividing by 0."""


@cache
def why_not(form: Form) -> str:
    """Say why a precision would be no gain on this CPU, or not work; empty where it is there."""
    has = {"fp32": (), "bf16": ("avx512_bf16", "amx_tile"), "int8": ("vnni",)}[form]
    if has and not any(getattr(torch.cpu, f"_is_{name}_supported", bool)() for name in has):
        return f"the CPU has no instructions for it that torch knows ({' or '.join(has)})"
    try:
        product = pack_linear(torch.eye(2), torch.zeros(2), form)(torch.ones(1, 2))
    except (AttributeError, RuntimeError) as error:
        return f"this torch has no such products: {str(error).splitlines()[0]}"
    return "" if bool((product - 1).abs().max() < 0.01) else "this torch's products are wrong"


class PackedLinear(nn.Module):
    """A Linear whose weight oneDNN has put into its own order once, not at every call."""

    def __init__(self, weight: Tensor, bias: Tensor, dtype: torch.dtype):
        super().__init__()
        self.dtype, self.bias = dtype, nn.Buffer(bias.to(dtype))
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype))

    def forward(self, x: Tensor) -> Tensor:
        """Turn [..., inputs] into [..., outputs], in fp32 outside whatever it multiplies in."""
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            x.to(self.dtype), self.weight, self.bias, "none", [], ""
        )
        return product.to(x.dtype)


class Int8Linear(nn.Module):
    """A Linear whose weight and input are whole numbers from -127 to 127, times a scale.

    Each output has a scale of its own for its weights, and each token one for its input
    (LLM.int8()'s vector-wise quantization, Dettmers et al. 2022, without the outliers kept
    apart). So a token's result depends on no other token: not on the batch it comes in.
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


class FirstTokenLayer(nn.Module):
    """A last layer of which only the first token is read: the others are but looked at."""

    def __init__(self, layer: Layer, form: Form):
        super().__init__()
        self.whole, width = layer, layer.attention.out.in_features
        weight, bias = layer.attention.qkv.weight, layer.attention.qkv.bias
        self.query = pack_linear(weight[:width], bias[:width], form)
        self.key_value = pack_linear(weight[width:], bias[width:], form)

    def forward(self, hidden: Tensor, mask: Tensor, adapter: LayerAdapter | None = None) -> Tensor:
        """Turn [rows, length, width] into [rows, 1, width]; with an adapter, into the same."""
        layer = self.whole
        if adapter is not None:
            return layer(hidden, mask, adapter)  # type: ignore[no-any-return]
        heads = (layer.attention.num_heads, -1)
        first = hidden[:, :1].contiguous()
        query = self.query(first).unflatten(-1, heads).transpose(1, 2)
        key, value = self.key_value(hidden).unflatten(-1, (2, *heads)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        mixed = layer.attention.out(mixed.transpose(1, 2).flatten(2))
        middle = layer.attention_norm(first + mixed)
        return layer.output_norm(middle + layer.down(layer.activation(layer.up(middle))))  # type: ignore[no-any-return]


def pack(encoder: Encoder, form: Form, *, first_only: bool) -> bool:
    """Lay out plait's own BERT for answering, in place, and say so; no other can be."""
    if not isinstance(encoder, Bert) or why_not(form):
        return False
    encoder.leaves_padding_out = False  # what is answered comes sorted by length
    last = cast("Layer", encoder.layers[-1])
    if first_only:
        encoder.layers[-1] = FirstTokenLayer(last, form)
    for layer in [*encoder.layers[:-1], last]:
        attention = layer.attention
        attention.qkv = pack_linear(attention.qkv.weight, attention.qkv.bias, form)
        attention.out = pack_linear(attention.out.weight, attention.out.bias, form)
        layer.up = pack_linear(layer.up.weight, layer.up.bias, form)
        layer.down = pack_linear(layer.down.weight, layer.down.bias, form)
    return True


def pack_linear(weight: Tensor, bias: Tensor, form: Form) -> nn.Module:
    """Make the product of a Linear's weight [outputs, inputs] and bias."""
    weight, bias = weight.detach().contiguous(), bias.detach()
    if form == "int8":
        return Int8Linear(weight, bias)
    return PackedLinear(weight, bias, torch.float32 if form == "fp32" else torch.bfloat16)
