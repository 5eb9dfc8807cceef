"""A linear layer that multiplies in half precision without casting its weights every time.

Autocast casts a weight in each forward pass and its gradient back in each backward pass: at a
batch of 8 that moves more memory than the products themselves. A Dense can hold half-precision
copies of its weights, made anew after each update, and add its weight's gradient straight into
a full-precision `.grad` that is there already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from plait.model.kernels import add_column_sums

if TYPE_CHECKING:
    from collections.abc import Iterable

_OUT_DTYPE = "dtype_out" in torch.ops.aten.addmm.overloads()
"""Whether a product of halves can be added to fp32 as it is made (torch 2.8)."""


class Dense(nn.Linear):
    """nn.Linear, which may hold copies of its parameters to compute with."""

    copies: tuple[Tensor, Tensor] | None = None
    """Weight and bias in half precision; None while autocast does the casting."""
    _copied: tuple[int, int, int, int] = (0, 0, 0, 0)

    def forward(self, vectors: Tensor, *, biased: bool = True) -> Tensor:
        """Multiply [..., in] to [..., out]; without the bias where somebody else adds it."""
        bias = self.bias if biased else None
        if torch.is_autocast_enabled(vectors.device.type):
            # Nobody may have changed the originals, or stand in for them.
            if self.copies is None or self._copied != self._marks():
                return functional.linear(vectors, self.weight, bias)
            half = self.copies[0], self.copies[1] if biased else None
        elif vectors.is_cuda and self.weight.requires_grad:
            half = self.weight.detach(), None if bias is None else bias.detach()
        else:
            return functional.linear(vectors, self.weight, bias)
        own = (vectors.to(half[0].dtype), self.weight, bias, *half)
        product: Tensor = _Product.apply(*own)  # type: ignore[no-untyped-call]
        return product

    def keep_copies(self, dtype: torch.dtype) -> None:
        """Hold copies from now on."""
        self.copies = (self.weight.detach().to(dtype), self.bias.detach().to(dtype))
        self._copied = self._marks()

    def drop_copies(self) -> None:
        """Let autocast do the casting again."""
        self.copies = None

    def _marks(self) -> tuple[int, int, int, int]:
        """Return what tells a parameter's contents from what they were."""
        w, b = self.weight, self.bias
        return (w.data_ptr(), w._version, b.data_ptr(), b._version)


def keep_copies(model: nn.Module, dtype: torch.dtype) -> None:
    """Let every Dense of a model hold copies."""
    for part in model.modules():
        if isinstance(part, Dense):
            part.keep_copies(dtype)


@torch.no_grad()
def renew_copies(layers: Iterable[Dense]) -> None:
    """Copy what the parameters have become, in place."""
    held = [layer for layer in layers if layer.copies is not None]
    if not held:
        return
    halves = [half for layer in held for half in layer.copies or ()]
    full = [part.detach() for layer in held for part in (layer.weight, layer.bias)]
    torch._foreach_copy_(halves, full)
    for layer in held:
        layer._copied = layer._marks()


class _Product(torch.autograd.Function):
    """x W^T + b from half-precision copies; gradients go to the full-precision originals."""

    @staticmethod
    def forward(
        ctx: Any,
        vectors: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        half_weight: Tensor,
        half_bias: Tensor | None,
    ) -> Tensor:
        ctx.save_for_backward(vectors, half_weight)
        ctx.parameters = (weight, bias)
        return functional.linear(vectors, half_weight, half_bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> Any:
        vectors, half_weight = ctx.saved_tensors
        weight, bias = ctx.parameters
        gradient = outer[0].to(half_weight.dtype)
        to_vectors = gradient @ half_weight if ctx.needs_input_grad[0] else None
        flat = gradient.flatten(0, -2)
        to_weight = to_bias = None
        if ctx.needs_input_grad[1]:
            to_weight = weight_gradient(weight, flat, vectors.flatten(0, -2))
        if ctx.needs_input_grad[2]:
            to_bias = _bias_gradient(bias, flat)
        return to_vectors, to_weight, to_bias, None, None


def weight_gradient(weight: Tensor, gradient: Tensor, vectors: Tensor) -> Tensor | None:
    """Return the weight's gradient, or add it where a backward pass would and return nothing."""
    if weight.grad is not None and weight.is_cuda and vectors.dtype == weight.dtype:
        weight.grad.addmm_(gradient.t(), vectors)
        return None
    if _OUT_DTYPE and weight.grad is not None and weight.is_cuda:
        torch.ops.aten.addmm.dtype_out(
            weight.grad, gradient.t(), vectors, weight.dtype, out=weight.grad
        )
        return None
    return (gradient.t() @ vectors).to(weight.dtype)


def _bias_gradient(bias: Tensor, gradient: Tensor) -> Tensor | None:
    if bias.grad is not None and bias.is_cuda:
        add_column_sums(bias.grad, gradient)
        return None
    return gradient.sum(dim=0, dtype=bias.dtype)
