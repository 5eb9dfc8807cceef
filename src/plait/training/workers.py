"""Checks that all workers have the same recipe, data and software."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from plait import __version__
from plait.config import list_settings
from plait.data.storage import hash_file
from plait.errors import RecipeError, RunError, WorkerLostError
from plait.training.checkpoint import load_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plait.config import RunConfig
    from plait.data import Dataset
    from plait.inference.folders import RunFolder
    from plait.training.build import Parts
    from plait.training.team import Team


def check_device(name: str, team: Team) -> None:
    """Raise RecipeError if the device setting does not give each worker its own device."""
    if team.size == 1 or name == "cpu":
        return
    if ":" in name:
        raise RecipeError(
            f"device = {name!r} is one device, but there are {team.size} workers: set "
            "device = 'cuda', and each worker uses its own GPU"
        )
    there = torch.cuda.device_count()
    if there and team.local_size > there:
        raise RecipeError(
            f"{team.local_size} workers on a host with {there} GPU{'s' * (there > 1)}: start one "
            "for each GPU, or train on the CPU with -o device=cpu"
        )


@contextmanager
def explain_lost_workers(team: Team, folder: RunFolder, command: str) -> Iterator[None]:
    """Replace the error of a broken connection by one that names the last checkpoint."""
    try:
        yield
    except RuntimeError as error:
        if not team.lost(error):
            raise
        if team.leads and not folder.recipe.exists():  # only the leader knows
            raise WorkerLostError(
                "a worker process ended, so all stopped; nothing was saved yet. Start them again"
            ) from error
        kept = "the last checkpoint is kept"
        if folder.checkpoint.exists():
            kept = f"the last checkpoint is update {load_state(folder.checkpoint).total_steps:,}"
        raise WorkerLostError(
            f"a worker process ended, so all stopped; {kept}. Go on, with any number of "
            f"workers, with: {command}"
        ) from error


def compare_recipes(config: RunConfig, team: Team) -> None:
    """Raise RunError if the workers have different recipes or overrides."""
    if team.size > 1:
        settings = list_settings(config)
        settings.pop("data.root", None)  # the data is compared, not its location
        _compare(team, {f"setting {key}": value for key, value in settings.items()})


def compare_workers(parts: Parts, data: Mapping[str, Mapping[str, Dataset]]) -> None:
    """Raise RunError if the workers have different data or software."""
    facts: dict[str, Any] = {
        "version of plait": __version__,
        "version of torch": torch.__version__,
        "kind of device": parts.device.type,
        "encoder": parts.encoder["sha256"],
    }
    if parts.start is not None:
        facts["run to start from"] = parts.start.facts.get("sha256")
    facts |= {f"plugin {place}": hash_file(Path(place)) for place in parts.config.plugins}
    for split, datasets in data.items():
        facts |= {f"{split} data of {name}": dataset.key for name, dataset in datasets.items()}
    _compare(parts.team, facts)


def _compare(team: Team, facts: Mapping[str, Any]) -> None:
    everyone = team.each(facts)
    for rank, theirs in enumerate(everyone):
        for what in {**everyone[0], **theirs}:
            if theirs.get(what) != everyone[0].get(what):
                raise RunError(
                    f"worker {rank} has another {what} than worker 0: make software and files "
                    "the same on all hosts"
                )
