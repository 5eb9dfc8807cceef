"""AdamW as the four systems use it, and the learning rate over a stage."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from plait.errors import RecipeError

if TYPE_CHECKING:
    from plait.config import StageConfig
    from plait.model.multitask import MultitaskModel


def build_optimizer(model: MultitaskModel, stage: StageConfig) -> torch.optim.AdamW:
    """Make AdamW over whatever trains: decoupled decay on weights, none on biases and norms."""
    groups: dict[tuple[bool, bool], list[torch.nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            # Biases and LayerNorm gains are the vectors of the model.
            key = (name.startswith("heads."), parameter.ndim > 1)
            groups.setdefault(key, []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": parameters,
                "peak_lr": (stage.head_lr or stage.lr) if is_head else stage.lr,
                "weight_decay": stage.weight_decay if decays else 0.0,
            }
            for (is_head, decays), parameters in groups.items()
        ],
        lr=stage.lr,
        betas=stage.betas,
        eps=stage.eps,
        fused=True,
    )


def rate_factor(stage: StageConfig, step: int, num_steps: int) -> float:
    """Return the share of the peak rate at an update; `step` counts from 0.

    The warm-up rises to the peak on its last update, the decay would reach 0 one update
    after the last.
    """
    warmup = math.ceil(round(stage.warmup * num_steps, 6))
    if step < warmup:
        return (step + 1) / warmup
    if stage.decay == "constant":
        return 1.0
    done = (step - warmup) / max(1, num_steps - warmup)
    return 1 - done if stage.decay == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def set_rate(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Give every group its share of its own peak rate."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak_lr"] * factor


def freeze(model: MultitaskModel, stage: StageConfig) -> None:
    """Let train what the stage trains, and nothing that no output depends on."""
    for name, parameter in model.encoder.named_parameters():
        layer = model.encoder.layer_of(name)
        is_pooler = layer > model.encoder.num_layers
        trains = stage.mode == "full-model" and (
            model.pooling == "cls-pooler"
            if is_pooler
            else stage.freeze_layers == 0 or layer > stage.freeze_layers
        )
        parameter.requires_grad_(trains)
    shares = any(parameter.requires_grad for parameter in model.encoder.parameters())
    for key, head in model.heads.items():
        task = key.removeprefix("task-")
        if not shares and not list(head.parameters()) and task in (stage.tasks or (task,)):
            raise RecipeError(
                f"task {task!r} has nothing to train: the encoder is frozen and its head has no "
                "parameters; leave it out of the stage's tasks, or let the encoder train"
            )
