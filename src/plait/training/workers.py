"""What several workers must have in common before they train one model."""

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
    """Refuse a device that several workers cannot have one of each."""
    if team.size == 1 or name == "cpu":
        return
    if ":" in name:
        raise RecipeError(
            f"device = {name!r} is one device, but {team.size} workers train: say 'cuda', and each "
            "takes its own"
        )
    there = torch.cuda.device_count()
    if there and team.local_size > there:
        raise RecipeError(
            f"{team.local_size} workers on a host with {there} GPU{'s' * (there > 1)}: start one "
            "for each GPU, or train on the CPU with -o device=cpu"
        )


@contextmanager
def lost_workers_told(team: Team, folder: RunFolder, command: str) -> Iterator[None]:
    """Turn what a broken connection says into a sentence about what is left of the run."""
    try:
        yield
    except RuntimeError as error:
        if not team.lost(error):
            raise
        if team.leads and not folder.recipe.exists():  # who leads alone can tell
            raise WorkerLostError(
                "a worker is gone, and the others stopped before anything was written; start them "
                "again"
            ) from error
        kept = "what was saved last stands"
        if folder.checkpoint.exists():
            kept = f"the checkpoint of update {load_state(folder.checkpoint).total_steps:,} stands"
        raise WorkerLostError(
            f"a worker is gone, and the others stopped; {kept}. Go on, with any number of "
            f"workers, with: {command}"
        ) from error


def compare_recipes(config: RunConfig, team: Team) -> None:
    """Refuse workers that were given different recipes, or settings over them."""
    if team.size > 1:
        settings = list_settings(config)
        settings.pop("data.root", None)  # what is there is compared, not where
        _compare(team, {f"setting {key}": value for key, value in settings.items()})


def compare_workers(parts: Parts, data: Mapping[str, Mapping[str, Dataset]]) -> None:
    """Refuse workers that would train on different data, or with different programs."""
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
                    f"worker {rank} has another {what} than worker 0: bring all hosts to the same, "
                    "files included"
                )
