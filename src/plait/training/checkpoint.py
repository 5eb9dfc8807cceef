"""Checkpoints: the state to resume a run, written atomically.

A checkpoint is one safetensors file: the model's weights, the optimizer's moments, and the
TrainState as JSON in the header. One file means one rename, so that a reader finds either
the old state or the new one, never a mixture.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from plait.errors import RunError
from plait.model.weights import fill_model, open_tensors, save_tensors
from plait.training.loop import TrainState
from plait.training.team import ALONE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from torch import Tensor

    from plait.model.multitask import MultitaskModel
    from plait.training.team import Team


def save_checkpoint(
    path: Path,
    model: MultitaskModel,
    optimizer: torch.optim.Optimizer | None,
    state: TrainState,
    kept: Mapping[str, Tensor] | None = None,
) -> None:
    """Save everything that is needed to resume; `kept` is the state of the step's parts."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"step.{name}": tensor for name, tensor in (kept or {}).items()}
    if optimizer is not None:
        tensors |= _optimizer_tensors(model, optimizer)
    save_tensors(path, tensors, {"format": "pt", "state": json.dumps(state.to_json())})


def load_state(path: Path) -> TrainState:
    """Read only the training state."""
    with open_tensors(path) as file:
        try:
            return TrainState.from_json(json.loads(file.metadata()["state"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"{path} is not a checkpoint this version can read") from error


def load_checkpoint(
    path: Path,
    model: MultitaskModel,
    optimizer: torch.optim.Optimizer | None,
    team: Team = ALONE,
) -> dict[str, Tensor]:
    """Read the tensors back into a model and an optimizer built alike; return what was kept.

    Of a team, the leader reads and the others are given what it read.
    """
    parts = ("model", "step") if optimizer is None else ("model", "step", "optimizer")
    tensors = team.spread(lambda: _read_parts(path, parts))

    def under(part: str) -> dict[str, Tensor]:
        start = len(part) + 1
        return {name[start:]: t for name, t in tensors.items() if name.startswith(f"{part}.")}

    fill_model(path, model, under("model"))
    if optimizer is not None:
        moments = under("optimizer")
        for name, parameter in model.named_parameters():
            kept = {
                key: moments[f"{key}.{name}"]
                for key in ("step", "exp_avg", "exp_avg_sq")
                if f"{key}.{name}" in moments
            }
            if kept:
                # AdamW keeps its counter where the moments are when it is fused on a GPU.
                optimizer.state[parameter] = {
                    key: value.to(parameter.device) for key, value in kept.items()
                }
    return under("step")


def _read_parts(path: Path, parts: Collection[str]) -> dict[str, Tensor]:
    with open_tensors(path) as file:
        wanted = [name for name in file.keys() if name.split(".")[0] in parts]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in wanted}


def _optimizer_tensors(
    model: MultitaskModel, optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    return {
        f"optimizer.{key}.{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
