"""What a run keeps on disk so that it can go on: written whole or not at all.

A checkpoint is one safetensors file: the model's weights, the optimizer's moments, and the
TrainState as JSON in the header. One file means one rename, so that a reader finds either
the old state or the new one, never a mixture.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from plait.data.cache import sync_folder
from plait.distributed import ALONE
from plait.errors import FREE_ROOM, DiskFullError, RunError, UsageError
from plait.training.loop import TrainState

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from torch import Tensor

    from plait.distributed import Team
    from plait.model.multitask import MultitaskModel


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; flush it and put it in place when all went well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with disk_full_told(path):
            yield temporary
            put_in_place(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def put_in_place(written: Path, path: Path) -> None:
    """Give a file that is whole its name, once all of it is on disk."""
    with written.open("rb+") as file:
        os.fsync(file.fileno())
    written.replace(path)
    sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove what a process killed while writing left behind; no other may be writing."""
    # Ours end in .tmp; the safetensors library's own begin with it.
    for pattern in (".*.tmp", ".tmp*"):
        for left in folder.glob(pattern):
            with suppress(OSError):
                left.unlink()


@contextmanager
def disk_full_told(path: Path) -> Iterator[None]:
    """Turn the system's word for a full or closed disk into a sentence about the file written."""
    try:
        yield
    except (OSError, SafetensorError) as error:  # the latter wraps what the system said
        number = error.errno if isinstance(error, OSError) else _errno_in(str(error))
        if number in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(path) from error
        if number in (errno.EROFS, errno.EACCES, errno.EPERM):
            said = os.strerror(number).lower()
            raise UsageError(
                f"{path} cannot be written ({said}): make its folder writable, or choose another"
            ) from error
        raise


def _errno_in(message: str) -> int | None:
    found = re.search(r"\(os error (\d+)\)", message)
    return int(found[1]) if found else None


def write_text(path: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def disk_full(path: Path) -> DiskFullError:
    """Say that a file or folder found no room, and what stands."""
    kept = "what was saved before is whole" if path.exists() else "nothing was written"
    return DiskFullError(f"the disk is full: {path} could not be written; {kept}. {FREE_ROOM}")


def save_weights(path: Path, model: MultitaskModel, without: Iterable[str] = ()) -> None:
    """Save the model alone, for whoever predicts with it; `without` names heads to leave out."""
    left_out = tuple(f"heads.task-{name}." for name in without)
    weights = {k: tensor for k, tensor in model.state_dict().items() if not k.startswith(left_out)}
    write_weights(path, weights)


def load_weights(path: Path, model: MultitaskModel, team: Team = ALONE) -> None:
    """Read the model back; of a team, the leader does so for all."""
    learnt = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    _load_model(path, model, team.spread(lambda: read_numbers(path, learnt)))


def write_weights(
    path: Path, weights: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Save a model's tensors by their names, and words about them."""
    _save(path, weights, {"format": "pt", **(metadata or {})})


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a model's tensors by their names."""
    with _open(path) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def read_numbers(path: Path, learnt: Collection[str] = ()) -> dict[str, Tensor]:
    """Read a model's tensors, and refuse those that would answer with what is no number.

    What is not `learnt` may be infinite, as masks are.
    """
    weights = read_weights(path)
    for name, tensor in weights.items():
        if tensor.float().sum().isfinite():  # quick; but large numbers may add up to too much
            continue
        is_fine = tensor.isfinite() if name in learnt else ~tensor.isnan()
        if not is_fine.all():
            raise RunError(
                f"{path} is damaged: {name} holds what is no number; copy or train it again"
            )
    return weights


def read_metadata(path: Path) -> dict[str, str]:
    """Read the words about a file's tensors."""
    with _open(path) as file:
        return dict(file.metadata() or {})


def hash_file(path: Path) -> str:
    """Return the sha256 of a run's file."""
    if not path.is_file():
        raise RunError(f"{path} is missing")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_checkpoint(
    path: Path,
    model: MultitaskModel,
    optimizer: torch.optim.Optimizer | None,
    state: TrainState,
    kept: Mapping[str, Tensor] | None = None,
) -> None:
    """Save everything the run needs to go on; `kept` is what the step's parts remember."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"step.{name}": tensor for name, tensor in (kept or {}).items()}
    if optimizer is not None:
        tensors |= _optimizer_tensors(model, optimizer)
    _save(path, tensors, {"format": "pt", "state": json.dumps(state.to_json())})


def load_state(path: Path) -> TrainState:
    """Read the place alone."""
    with _open(path) as file:
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

    _load_model(path, model, under("model"))
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
    with _open(path) as file:
        wanted = [name for name in file.keys() if name.split(".")[0] in parts]  # noqa: SIM118
        return {name: file.get_tensor(name) for name in wanted}


def _load_model(path: Path, model: MultitaskModel, weights: Mapping[str, Tensor]) -> None:
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:  # a list of every tensor that is missing or of another shape
        reason = str(error).splitlines()[-1].strip()
        raise RunError(f"{path} does not fit the model its recipe makes: {reason}") from error


def _optimizer_tensors(
    model: MultitaskModel, optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    return {
        f"optimizer.{key}.{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _save(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    with atomic_path(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        save_file(
            {name: tensor.detach().contiguous() for name, tensor in tensors.items()},
            temporary,
            metadata=metadata,
        )
        temporary.chmod(mode)  # the library makes files that nobody but their owner may read


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError as error:  # the library's word also for what may not be read
        what = "may not be read: see to its rights" if path.exists() else "is missing"
        raise RunError(f"{path} {what}") from error
    except SafetensorError as error:
        raise RunError(f"{path} is damaged: {error}") from error
