"""AdamW as the four systems use it, and the learning rate over a stage."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from plait.errors import RecipeError

if TYPE_CHECKING:
    from plait.config import StageConfig
    from plait.methods.weighting import Weighting
    from plait.model.multitask import MultitaskModel


def build_optimizer(model: MultitaskModel, stage: StageConfig) -> torch.optim.AdamW:
    """Make AdamW over whatever trains: decoupled decay on weights, none on biases and norms."""
    device = next(model.parameters()).device
    groups: dict[tuple[float, bool], list[torch.nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            # Biases and LayerNorm gains are the vectors of the model.
            key = (_peak_rate(model, name, stage), parameter.ndim > 1)
            groups.setdefault(key, []).append(parameter)
    return torch.optim.AdamW(
        [
            {
                "params": parameters,
                "lr": _rate(peak, device),
                "peak_lr": peak,
                "weight_decay": stage.weight_decay if decays else 0.0,
            }
            for (peak, decays), parameters in groups.items()
        ],
        lr=_rate(stage.lr, device),
        betas=stage.betas,
        eps=stage.eps,
        fused=True,
        capturable=device.type == "cuda",
    )


def add_weighting(
    optimizer: torch.optim.Optimizer, weighting: Weighting, stage: StageConfig
) -> None:
    """Let the optimizer learn a weighting's parameters as well: like heads, without decay."""
    if learned := [p for task in weighting.tasks for p in weighting.parameters(task)]:
        peak = weighting.lr or stage.head_lr or stage.lr
        group = {"params": learned, "peak_lr": peak, "weight_decay": 0.0}
        optimizer.add_param_group({"lr": _rate(peak, learned[0].device), **group})


def _rate(rate: float, device: torch.device) -> torch.Tensor | float:
    """Return a group's own learning rate: a tensor where a captured update is to read it."""
    return torch.tensor(rate, device=device) if device.type == "cuda" else rate


def _peak_rate(model: MultitaskModel, name: str, stage: StageConfig) -> float:
    """Return a parameter's highest learning rate.

    Layer-wise decay as Sun et al. 2019 (How to Fine-Tune BERT for Text Classification) have
    it: the top layer L and the pooler learn at lr, layer l at lr * layer_decay^(L - l), the
    embeddings, as layer 0, at lr * layer_decay^L. Heads and adapters stand apart.
    """
    inside = name.removeprefix("encoder.")
    if inside == name:
        return stage.head_lr or stage.lr
    if stage.layer_decay == 1:
        return stage.lr
    below = model.encoder.num_layers - model.encoder.layer_of(inside)
    return stage.lr * stage.layer_decay ** max(0, below)


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
    """Set the learning rate of every group to `factor` times its peak rate."""
    for group in optimizer.param_groups:
        rate = group["peak_lr"] * factor
        if isinstance(group["lr"], torch.Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


def freeze(model: MultitaskModel, stage: StageConfig) -> None:
    """Let train what the stage trains, and nothing that no output depends on."""
    for name, parameter in model.encoder.named_parameters():
        trains = stage.mode == "full-model" and (
            model.pooling == "cls-pooler"
            if model.encoder.is_pooler(name)
            else stage.freeze_layers == 0 or model.encoder.layer_of(name) > stage.freeze_layers
        )
        parameter.requires_grad_(trains)
    shares = any(parameter.requires_grad for parameter in model.encoder.parameters())
    for key in model.heads:
        task = key.removeprefix("task-")
        own = model.head_parameters(task)
        trains = bool(own) or (shares and model.touches_encoder(task))
        if not trains and task in (stage.tasks or (task,)):
            why = "the encoder is frozen" if not shares else "it may not touch the encoder"
            raise RecipeError(
                f"task {task!r} has no trainable parameters: {why} and its head has no parameters; "
                "remove it from the stage's tasks, train the encoder, or add an adapter"
            )
