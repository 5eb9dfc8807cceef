"""Safetensors files of weights: writing, reading and checking them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from plait.data.storage import atomic_path
from plait.errors import RunError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from torch import Tensor

    from plait.model.multitask import MultitaskModel


def save_weights(path: Path, model: MultitaskModel, without: Iterable[str] = ()) -> None:
    """Save the model alone, for whoever predicts with it; `without` names heads to leave out."""
    left_out = tuple(f"heads.task-{name}." for name in without)
    weights = {k: tensor for k, tensor in model.state_dict().items() if not k.startswith(left_out)}
    write_weights(path, weights)


def load_weights(path: Path, model: MultitaskModel) -> None:
    """Load a model's weights from a file."""
    fill_model(path, model, read_learnt(path, model))


def read_learnt(path: Path, model: MultitaskModel) -> dict[str, Tensor]:
    """Read the weights of a model, refusing learned ones that are not finite."""
    learnt = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return read_numbers(path, learnt)


def write_weights(
    path: Path, weights: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Save a model's tensors by their names, and words about them."""
    save_tensors(path, weights, {"format": "pt", **(metadata or {})})


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read a model's tensors by their names."""
    with open_tensors(path) as file:
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
                f"{path} is damaged: {name} has NaN or infinite values; copy or train it again"
            )
    return weights


def read_metadata(path: Path) -> dict[str, str]:
    """Read the words about a file's tensors."""
    with open_tensors(path) as file:
        return dict(file.metadata() or {})


def fill_model(path: Path, model: MultitaskModel, weights: Mapping[str, Tensor]) -> None:
    """Load weights into a model; RunError says when they do not fit."""
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:  # a list of every tensor that is missing or of another shape
        reason = str(error).splitlines()[-1].strip()
        raise RunError(f"{path} does not fit the model its recipe makes: {reason}") from error


def save_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> None:
    """Write tensors and metadata as one safetensors file, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        save_file(
            {name: tensor.detach().contiguous() for name, tensor in tensors.items()},
            temporary,
            metadata=metadata,
        )
        temporary.chmod(mode)  # safetensors creates files that only the owner can read


@contextmanager
def open_tensors(path: Path) -> Iterator[Any]:
    """Open a safetensors file; RunError says when it is missing or damaged."""
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError as error:  # the library's word also for what may not be read
        what = "may not be read: see to its rights" if path.exists() else "is missing"
        raise RunError(f"{path} {what}") from error
    except SafetensorError as error:
        raise RunError(f"{path} is damaged: {error}") from error
