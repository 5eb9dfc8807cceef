"""The folder of a run: its files, its lock, and reading it.

recipe.toml             every setting, resolved
model.safetensors       encoder and heads at the best dev score
checkpoint.safetensors  the last training state, to resume from
encoder.json            the encoder's configuration
tokenizer.json
run.json                versions, hardware, encoder, plugins, data, teachers, start
metrics.jsonl           losses and scores over time
scores.json             dev scores of the best model, once finished
card.md                 the model card, once finished
calibration.json        temperatures and offsets, if calibrated
audit.json              the result of `plait audit`
report.html             the report of `plait report`
answers/                predictions for dev, cached by reports and calibrations
teacher/                a teacher's predictions for the training rows, if a stage distils
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
        """The model card."""
        return self.path / "card.md"

    @property
    def calibration(self) -> Path:
        """The calibration, if there is one."""
        return self.path / "calibration.json"

    @property
    def info(self) -> Path:
        """Facts about the training."""
        return self.path / "run.json"

    @property
    def log(self) -> Path:
        """Losses and scores over time."""
        return self.path / "metrics.jsonl"

    @property
    def teacher(self) -> Path:
        """Predictions of teachers, a file for each stage."""
        return self.path / "teacher"

    @property
    def lock(self) -> Path:
        """Locked by the process that trains the run."""
        return self.path / ".lock"

    def read_config(self) -> RunConfig:
        """Read the resolved recipe."""
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
                f"{error}; the run was made by plait {made_by}, but this is {__version__}: use a "
                "compatible version"
            ) from error

    def _version(self) -> str | None:
        """Return the version of plait that made the run, if it is known."""
        with suppress(RunError):
            return self.read_json(self.info).get("plait")
        return None

    def require_begun(self) -> None:
        """Raise RunError if the folder has a recipe but was never trained, such as a draft."""
        if not self.info.is_file():
            raise RunError(
                f"{self.path} has a recipe but no model; train it with "
                f"`plait train {quote(str(self.recipe))}` and name the run's folder"
            )

    def require_model(self) -> None:
        """Raise RunError if the folder has no weights; the message says what it is instead."""
        if self.weights.is_file():
            return
        if (self.path / "export.json").is_file():
            raise RunError(
                f"{self.path} is an exported folder, not a run; name the run it was made of"
            )
        self.require_begun()
        if self.scores.is_file():
            raise RunError(
                f"{self.path} is a finished run, but its {self.weights.name} is missing; copy the "
                "whole folder, or train it again"
            )
        raise RunError(f"{self.path} has no model yet: its training has not saved one")

    def find_changes(self, config: RunConfig) -> list[str]:
        """List the settings that differ between a recipe and the run's own."""
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
            raise RunError(f"{path} is damaged: it is not a JSON object")
        return values


def list_changes(known: RunConfig, config: RunConfig, info: Mapping[str, Any]) -> list[str]:
    """List the settings that differ between a recipe and the one that a run was started with.

    `info` is the run's run.json. It has the absolute paths of folders, so that the same folder
    under another name is not a difference.
    """
    begun = _folders_begun_with(known, info)

    def is_same(key: str, old: Any, new: Any) -> bool:
        if key not in begun or not isinstance(new, str):
            return False
        return Path(new).resolve() in {Path(place).resolve() for place in (old, *begun[key])}

    return differences(known, config, is_same)


def _folders_begun_with(config: RunConfig, info: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the settings that name folders, with the paths that run.json has for them.

    If it has no folder for a teacher of a single run, the path of that run is used.
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
    """Return whether there is a file, or a folder that is not empty, at a path."""
    return path.exists() and (not path.is_dir() or any(path.iterdir()))


def check_place(path: Path) -> None:
    """Raise RunError if the path of a new folder exists, before anything slow begins."""
    if is_taken(path):
        raise RunError(f"{path} exists already and is not overwritten; choose another --out")


@contextmanager
def made_whole(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, which is renamed to `path` at the end without an error."""
    check_place(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with disk_full_told(path):
            part.mkdir()
            yield part
            if path.exists():  # an empty folder, which check_place accepts
                path.rmdir()
            part.replace(path)
    except DiskFullError as error:  # it names a file of the temporary folder
        raise disk_full(path) from error
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_folder(path: Path, config: RunConfig, *, resume: bool, command: str) -> RunFolder:
    """Raise RunError if the folder holds something else, before anything slow begins.

    `command` is the command that resumes the run, for the error message.
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
        raise RunError(f"{path} is an average of runs, which cannot be resumed")
    changed = folder.find_changes(config)
    if changed:
        more = f" and {len(changed) - 5} more" if len(changed) > 5 else ""
        raise RunError(
            f"{path} was started with another recipe ({'; '.join(changed[:5])}{more}); "
            "resume it with the same recipe, or choose another --out"
        )
    return folder


def _is_stillborn(folder: RunFolder) -> bool:
    """Return whether a run ended before it wrote its recipe."""
    if folder.recipe.exists() or not folder.lock.exists():
        return False
    return all(item.name.startswith(".") for item in folder.path.iterdir())


def _exists(folder: RunFolder, command: str) -> RunError:
    is_begun = folder.recipe.is_file() and (folder.info.is_file() or folder.lock.exists())
    go_on = f"continue with `{command}`, or " if is_begun else ""
    return RunError(
        f"{folder.path} exists already and is not overwritten; {go_on}choose another --out"
    )


@contextmanager
def opened(folder: RunFolder, config: RunConfig, *, resume: bool, command: str) -> Iterator[None]:
    """Create the folder if it is new, and lock it for other processes."""
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        file = folder.lock.open("a")
    except OSError as error:
        reason = error.strerror or str(error)
        raise RunError(f"cannot write in {folder.path}: {reason}; choose another --out") from error
    with file:
        take_lock(file, folder)
        if folder.recipe.exists() and not resume:  # another process was faster
            raise _exists(folder, command)
        remove_leftovers(folder.path)
        if not folder.recipe.exists():
            write_text(folder.recipe, to_toml(config))
        yield


def take_lock(file: IO[str], folder: RunFolder) -> None:
    """Lock a folder for this process while the file is open."""
    if not lock(file):
        raise RunError(f"{folder.path} is being trained by another process")


def write_parts(
    folder: RunFolder, parts: Parts, data: dict[str, Any], taught: Mapping[str, Any]
) -> None:
    """Write the recipe, tokenizer and configuration of the encoder, and run.json.

    `taught` has the facts about teachers, if there are any.
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
    """Return the facts about datasets for run.json, by split and name.

    `unseen` are the numbers of texts that pre-training leaves out.
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
    """Raise RunError if data or encoder differ from those in run.json.

    Plugins may have changed; returns a sentence for each changed one.
    """
    before = folder.read_json(folder.info)
    shape = folder.read_json(folder.encoder)
    known = before["data"]
    for split, name in ((s, n) for s in data for n in {**known.get(s, {}), **data[s]}):
        if known.get(split, {}).get(name) != data[split].get(name):
            raise RunError(
                f"the {split} data of {name} changed since {folder.path} was started; "
                "restore it, or choose another --out"
            )
    same = before["encoder"]["sha256"] == parts.encoder["sha256"]
    if not same or shape != parts.model.encoder.config:
        raise RunError(
            f"the encoder changed since {folder.path} was started; "
            "restore it, or choose another --out"
        )
    begun = before.get("plugins", {})
    return [
        f"{plugin} changed since the run was started; training continues with the new version"
        for plugin, digest in hash_plugins(parts.config).items()
        if begun.get(plugin, digest) != digest
    ]


def hash_plugins(config: RunConfig) -> dict[str, str]:
    """Return the sha256 of each plugin of a recipe."""
    return {plugin: hash_file(Path(plugin)) for plugin in config.plugins}


def describe_device(device: torch.device) -> str:
    """Return a readable name of a device."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()}, {os.cpu_count()} cores)"
