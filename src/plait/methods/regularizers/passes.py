"""Passes that differ by little are run so that nothing else differs.

Dropout would differ from pass to pass, and be measured in the place of what is meant. Where the
difference is tiny, so would rounding: to bf16 or TF32 (8 and 11 bits) it is coarser than a
change of 1e-5.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from plait.model.multitask import Group, MultitaskModel


@contextmanager
def without_dropout(model: MultitaskModel) -> Iterator[None]:
    """Run what is inside as the model that predicts; leave everything as it was.

    Dropout is turned off rather than repeated: setting a generator back would keep the step
    from being captured as a CUDA graph.
    """
    training = [module for module in model.modules() if module.training]
    try:
        for module in training:
            module.training = False
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def in_fp32(device: torch.device) -> Iterator[None]:
    """Run what is inside in true fp32.

    A backward pass afterwards is in fp32 too, as long as TF32 is not allowed everywhere
    (torch.set_float32_matmul_precision), which plait never does.
    """
    precision = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)


@contextmanager
def frozen(model: MultitaskModel) -> Iterator[None]:
    """Run what is inside without a graph to the parameters; inputs may have one."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in trained:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_()


def clean_outputs(
    model: MultitaskModel, group: Group, outputs: Sequence[Tensor], *, fp32: bool
) -> Sequence[Tensor]:
    """Return each task's outputs without dropout, in fp32 where asked.

    They are those at hand, where these are so already, or made by a new pass. Call it outside
    the passes' own contexts, as it asks how the outputs at hand were made.
    """
    device = group.tokens.ids.device
    halved = fp32 and torch.is_autocast_enabled(device.type)
    if not halved and not _drops_out(model):
        return outputs
    with without_dropout(model), in_fp32(device) if fp32 else nullcontext():
        made: list[Tensor] = model(group, group.tokens)
    return made


def _drops_out(model: MultitaskModel) -> bool:
    """Say whether anything may drop out; a yes too many only costs a pass."""
    # Dropout inside fused attention has no module, only a number; nn.Dropout's is called p.
    return any(
        isinstance(value, int | float) and value > 0 and (name == "p" or "drop" in name)
        for module in model.modules()
        if module.training
        for name, value in vars(module).items()
    )
