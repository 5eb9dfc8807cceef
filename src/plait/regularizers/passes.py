"""Passes that differ by very little are run so that nothing else differs.

Dropout would differ from pass to pass, and rounding to bf16 or TF32 (8 and 11 bits) is
coarser than a change of 1e-5: either would be measured in the place of what is meant.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from plait.model.multitask import Group, MultitaskModel


@contextmanager
def exact(model: MultitaskModel, device: torch.device) -> Iterator[None]:
    """Run what is inside in true fp32 and without dropout; leave everything as it was.

    Dropout is turned off rather than repeated: setting a generator back would keep the step
    from being captured as a CUDA graph, and the term then speaks of the model that predicts.
    A backward pass afterwards is in fp32 too, as long as TF32 is not allowed everywhere
    (torch.set_float32_matmul_precision), which plait never does.
    """
    training = [module for module in model.modules() if module.training]
    precision = torch.get_float32_matmul_precision()
    try:
        for module in training:
            module.training = False
        torch.set_float32_matmul_precision("highest")
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(precision)
        for module in training:
            module.training = True


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
    model: MultitaskModel, group: Group, outputs: Sequence[Tensor]
) -> Sequence[Tensor]:
    """Return each task's outputs as `exact` has them: those at hand where they are, or a new pass.

    Call it outside `exact`, as it asks how the outputs at hand were made.
    """
    device = group.tokens.ids.device
    if not torch.is_autocast_enabled(device.type) and not _drops_out(model):
        return outputs
    with exact(model, device):
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
