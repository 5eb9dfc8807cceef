"""A run's folder: what is in it, who may write there, and how it is read back.

recipe.toml             every setting, resolved
model.safetensors       encoder and heads at the best dev score
checkpoint.safetensors  the last state, to go on from
encoder.json            the encoder's configuration
tokenizer.json
run.json                versions, hardware, encoder, plugins, data, teachers, where it started
metrics.jsonl           losses and scores over time
scores.json             dev scores of the best model, once finished
card.md                 what the model is, for people, once finished
calibration.json        what the probabilities are scaled by, where calibrated
audit.json              the score card of `plait audit`, once audited
report.html             the page of `plait report`, where one was asked for
answers/                answers to dev, where a report or a calibration asked for them
teacher/                a teacher's answers to the training rows, where a stage distils
tensorboard/            events, where TensorBoard is installed
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import IO, TYPE_CHECKING, Any

import torch

from plait import __version__
from plait.config import RunConfig, differences, read_resolved, to_toml
from plait.config.choose import complete_as
from plait.data.locks import lock
from plait.data.storage import (
    atomic_path,
    disk_full,
    disk_full_told,
    hash_file,
    remove_leftovers,
    write_text,
)
from plait.errors import DiskFullError, RecipeError, RunError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plait.data import Dataset
    from plait.training.build import Parts


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Paths inside a run's folder."""

    path: Path

    @property
    def recipe(self) -> Path:
        """The resolved recipe."""
        return self.path / "recipe.toml"

    @property
    def weights(self) -> Path:
        """The best model."""
        return self.path / "model.safetensors"

    @property
    def checkpoint(self) -> Path:
        """The last state."""
        return self.path / "checkpoint.safetensors"

    @property
    def encoder(self) -> Path:
        """The encoder's configuration."""
        return self.path / "encoder.json"

    @property
    def tokenizer(self) -> Path:
        """The tokenizer, whole."""
        return self.path / "tokenizer.json"

    @property
    def scores(self) -> Path:
        """Dev scores of a finished run."""
        return self.path / "scores.json"

    @property
    def card(self) -> Path:
        """A page about the model."""
        return self.path / "card.md"

    @property
    def calibration(self) -> Path:
        """Temperatures of the probabilities, where somebody calibrated them."""
        return self.path / "calibration.json"

    @property
    def info(self) -> Path:
        """What the run was made with."""
        return self.path / "run.json"

    @property
    def log(self) -> Path:
        """Losses and scores over time."""
        return self.path / "metrics.jsonl"

    @property
    def teacher(self) -> Path:
        """Teachers' answers, a file for each stage."""
        return self.path / "teacher"

    @property
    def lock(self) -> Path:
        """Held by the process that trains here."""
        return self.path / ".lock"

    def read_config(self) -> RunConfig:
        """Read the resolved recipe back."""
        if not self.recipe.is_file():
            hints = {
                "ensemble.toml": "it is an ensemble; name one of its members",
                "study.db": "it is a search; its runs are in trials/, its best recipe in best.toml",
            }
            found = [hint for name, hint in hints.items() if (self.path / name).is_file()]
            raise RunError(f"{self.path} is not a run: {(found or ['it has no recipe.toml'])[0]}")
        try:
            return read_resolved(self.recipe)
        except RecipeError as error:
            made_by = self._version()
            if made_by in (None, __version__):
                raise
            raise RecipeError(
                f"{error}; the run was made by plait {made_by}, and this is {__version__}: use a "
                "version that knows it"
            ) from error

    def _version(self) -> str | None:
        """Return which plait made the run, where that can be told."""
        with suppress(RunError):
            return self.read_json(self.info).get("plait")
        return None

    def require_begun(self) -> None:
        """Refuse a folder with a recipe that nobody has trained in, such as a drafted one."""
        if not self.info.is_file():
            raise RunError(
                f"{self.path} has a recipe and no model; train it with "
                f"`plait train {quote(str(self.recipe))}`, and name the run's folder"
            )

    def require_model(self) -> None:
        """Refuse a folder that has no weights, and say what it is instead."""
        if self.weights.is_file():
            return
        if (self.path / "export.json").is_file():
            raise RunError(
                f"{self.path} is an exported folder, not a run; name the run it was made of"
            )
        self.require_begun()
        if self.scores.is_file():
            raise RunError(
                f"{self.path} is a finished run, but its {self.weights.name} is gone; copy the "
                "folder whole, or train it again"
            )
        raise RunError(f"{self.path} has no model yet: its training has not got that far")

    def find_changes(self, config: RunConfig) -> list[str]:
        """List what a recipe says otherwise than the run's own; another spelling is no change."""
        info = self.read_json(self.info) if self.info.is_file() else {}
        known = self.read_config()
        return list_changes(known, complete_as(config, known), info)

    def read_json(self, path: Path) -> dict[str, Any]:
        """Read one of the run's JSON files."""
        try:
            values: Any = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise RunError(f"{path} is missing: the run is not finished") from error
        except ValueError as error:
            raise RunError(f"{path} is damaged: {error}") from error
        if not isinstance(values, dict):
            raise RunError(f"{path} is damaged: it holds no names with values")
        return values


def list_changes(known: RunConfig, config: RunConfig, info: Mapping[str, Any]) -> list[str]:
    """List what a recipe says otherwise than the one that was begun with; folders are compared.

    `info` is the run.json of a run that was: the recipe may have been begun with elsewhere, where
    its folders had other names.
    """
    begun = _folders_begun_with(known, info)

    def is_same(key: str, old: Any, new: Any) -> bool:
        if key not in begun or not isinstance(new, str):
            return False
        return Path(new).resolve() in {Path(place).resolve() for place in (old, *begun[key])}

    return differences(known, config, is_same)


def _folders_begun_with(config: RunConfig, info: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the settings that name folders, and what run.json knows those to be.

    Where it names no folder of a teacher, the one run that the teacher is made of stands for it.
    """
    start, taught = info.get("start", {}), info.get("teachers", {})
    single = {name: members[0]["run"] for name, members in taught.items() if len(members) == 1}
    teachers = single | info.get("teacher_folders", {})
    return {
        "start.run": [start["run"]] if "run" in start else [],
        "train.kind.teacher": list(teachers.values()),
        **{
            f"stage.{name}.kind.teacher": [teachers[name]] if name in teachers else []
            for name in config.stages
        },
    }


def is_taken(path: Path) -> bool:
    """Say whether a file is at a path, or a folder that holds something."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def check_place(path: Path) -> None:
    """Refuse a place for a new folder that is taken, before anything slow begins."""
    if is_taken(path):
        raise RunError(f"{path} exists already and is not overwritten; choose another --out")


@contextmanager
def made_whole(path: Path) -> Iterator[Path]:
    """Give a folder to write into, which becomes `path` when all went well."""
    check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with disk_full_told(path):
            part.mkdir()
            yield part
            if path.exists():  # an empty folder, which check_place let through
                path.rmdir()
            part.replace(path)
    except DiskFullError as error:  # of a file inside, by a name that nobody knows
        raise disk_full(path) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_folder(path: Path, config: RunConfig, *, resume: bool, command: str) -> RunFolder:
    """Refuse a folder that holds something else, before anything slow begins.

    `command` is what goes on with the run, for the error that an existing folder gives.
    """
    folder = RunFolder(path)
    if _is_stillborn(folder):
        return folder
    if not resume:
        if is_taken(path):
            raise _exists(folder, command)
        return folder
    if not path.is_dir():
        raise RunError(f"there is no run at {path} to resume; leave out --resume to start one")
    if folder.info.is_file() and "averaged" in folder.read_json(folder.info):
        raise RunError(f"{path} is an average of runs, which cannot be trained on")
    changed = folder.find_changes(config)
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise RunError(
            f"{path} was started with another recipe ({'; '.join(changed[:5])}{more}); "
            "resume it unchanged, or train under another --out"
        )
    return folder


def _is_stillborn(folder: RunFolder) -> bool:
    """Say whether a run ended, killed or out of room, before it wrote its recipe."""
    if folder.recipe.exists() or not folder.lock.exists():
        return False
    return all(item.name.startswith(".") for item in folder.path.iterdir())


def _exists(folder: RunFolder, command: str) -> RunError:
    is_begun = folder.recipe.is_file() and (folder.info.is_file() or folder.lock.exists())
    go_on = f"go on there with `{command}`, or " if is_begun else ""
    return RunError(
        f"{folder.path} exists already and is not overwritten; {go_on}choose another --out"
    )


@contextmanager
def opened(folder: RunFolder, config: RunConfig, *, resume: bool, command: str) -> Iterator[None]:
    """Make the folder if it is new, and keep a second process from training in it."""
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        file = folder.lock.open("a")
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"cannot write in {folder.path}: {reason}; choose another --out") from error
    with file:
        take_lock(file, folder)
        if folder.recipe.exists() and not resume:  # another process was quicker
            raise _exists(folder, command)
        remove_leftovers(folder.path)
        if not folder.recipe.exists():
            write_text(folder.recipe, to_toml(config))
        yield


def take_lock(file: IO[str], folder: RunFolder) -> None:
    """Keep a folder to this process for as long as the file is open."""
    if not lock(file):
        raise RunError(f"{folder.path} is being trained by another process")


def write_parts(
    folder: RunFolder, parts: Parts, data: dict[str, Any], taught: Mapping[str, Any]
) -> None:
    """Write what predicting anywhere needs besides weights, and what the run was made with.

    `taught` says who its teachers are, if it has any.
    """
    write_text(folder.encoder, json.dumps(parts.model.encoder.config, indent=1))
    with atomic_path(folder.tokenizer) as temporary:
        parts.tokenizer.save(temporary)
    info = {
        "plait": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "device": describe_device(parts.device),
        "threads": torch.get_num_threads(),
        "precision": "bf16" if parts.autocast else "fp32",
        "encoder": parts.encoder,
        **({"plugins": hash_plugins(parts.config)} if parts.config.plugins else {}),
        "data": data,
        **({"workers": parts.team.size} if parts.team.size > 1 else {}),
        **taught,
        **({"start": parts.start.facts} if parts.start else {}),
    }
    write_text(folder.info, json.dumps(info, indent=1))


def describe_data(
    data: Mapping[str, Mapping[str, Dataset]], unseen: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, Any]]:
    """Say what run.json keeps of data sets, by split and name.

    `unseen` are the texts of them that pre-training passes over.
    """
    return {
        split: {
            name: _describe_dataset(dataset, unseen.get(split, {}).get(name, 0))
            for name, dataset in datasets.items()
        }
        for split, datasets in data.items()
    }


def _describe_dataset(dataset: Dataset, unseen: int) -> dict[str, Any]:
    facts: dict[str, Any] = {"rows": len(dataset), "key": dataset.key}
    more = {
        "held_out_rows": sum(report.held_out for report in dataset.report),
        "held_out_texts": unseen,
        "made": [str(extension) for extension in dataset.extensions],
    }
    return facts | {name: value for name, value in more.items() if value}


def compare_parts(
    folder: RunFolder, parts: Parts, data: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """Refuse to go on with other data or another encoder than write_parts wrote down.

    Plugins may have changed; returns a sentence for each that has.
    """
    before = folder.read_json(folder.info)
    shape = folder.read_json(folder.encoder)
    known = before["data"]
    for split, name in ((s, n) for s in data for n in {**known.get(s, {}), **data[s]}):
        if known.get(split, {}).get(name) != data[split].get(name):
            raise RunError(
                f"the {split} data of {name} changed since {folder.path} was started; "
                "bring it back as it was, or train under another --out"
            )
    same = before["encoder"]["sha256"] == parts.encoder["sha256"]
    if not same or shape != parts.model.encoder.config:
        raise RunError(
            f"the encoder changed since {folder.path} was started; "
            "bring it back as it was, or train under another --out"
        )
    begun = before.get("plugins", {})
    return [
        f"{plugin} is not what it was when the run began; from here on it trains with what it is"
        for plugin, digest in hash_plugins(parts.config).items()
        if begun.get(plugin, digest) != digest
    ]


def hash_plugins(config: RunConfig) -> dict[str, str]:
    """Return the sha256 of each file of the user's that a run is trained with."""
    return {plugin: hash_file(Path(plugin)) for plugin in config.plugins}


def describe_device(device: torch.device) -> str:
    """Name a device in words."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()}, {os.cpu_count()} cores)"
