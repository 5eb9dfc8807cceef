"""Predict a run's dev rows, or the training rows that it left out, and cache the predictions.

answers/                one array per task, named by a hash of weights, plugins, data and precision
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plait.data.storage import atomic_path
from plait.errors import DiskFullError, NoRowsError, UsageError
from plait.inference.build import choose_device
from plait.inference.ensemble import Ensemble, load, load_to_calibrate
from plait.inference.folders import hash_plugins
from plait.tasks import TaskScores

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from plait.config import RunConfig
    from plait.data import Dataset
    from plait.data.fingerprints import Hashes
    from plait.inference.calibration import Scaling
    from plait.inference.predictor import Answerer, Progress
    from plait.tasks import TaskSpec
    from plait.tasks.kind import Floats

FOLDER = "answers"


@dataclass(frozen=True, slots=True, eq=False)
class TaskAnswers:
    """A model's predictions for the dev rows of one task, and the labels."""

    spec: TaskSpec
    metric: str
    """The task's metric."""
    dataset: Dataset
    labels: Floats
    uncalibrated: Floats
    """Uncalibrated probabilities [rows, classes] or scores [rows]."""
    scaling: Scaling | None
    """The saved calibration; None if the model is not calibrated."""

    @property
    def answers(self) -> Floats:
        """The predictions with calibration, as in `plait predict`."""
        return self.uncalibrated if self.scaling is None else self.scaling(self.uncalibrated)

    @property
    def groups(self) -> Hashes | None:
        """A key per row; rows of the same group have the same key, as in folds.

        None for dev rows: `group` is a column of training files, and dev files need not have it.
        """
        find = self.dataset.find_groups
        return None if find is None else find()

    def score(self) -> TaskScores:
        """Return all metrics of the predictions."""
        return self.spec.kind.score(self.labels, self.answers)

    def has_rows_of(self, other: TaskAnswers) -> bool:
        """Return whether both have the same rows and labels, in the same order."""
        mine, theirs = self.dataset.fingerprints, other.dataset.fingerprints
        return (
            self.spec.kind == other.spec.kind
            and self.spec.labels == other.spec.labels
            and len(self.labels) == len(other.labels)
            and bool((mine == theirs).all())
            and bool((self.labels == other.labels).all())
        )


@dataclass(frozen=True, slots=True, eq=False)
class PooledAnswers:
    """Predictions of several models for one task, each for its own rows, and the labels."""

    spec: TaskSpec
    labels: Floats
    uncalibrated: Floats
    """Uncalibrated probabilities [rows, classes]."""
    groups: Hashes
    """As for a single model; without groups, all predictions for one row form a group."""

    @classmethod
    def of(cls, parts: Sequence[TaskAnswers]) -> PooledAnswers:
        """Concatenate the predictions of several models for the same task."""
        groups = [(part.groups, part.dataset) for part in parts]
        return cls(
            parts[0].spec,
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.uncalibrated for part in parts]),
            np.concatenate([rows.fingerprints if own is None else own for own, rows in groups]),
        )


def answer_dev(
    run: Path,
    *,
    data: str | None = None,
    device: str = "auto",
    calibrated: bool = True,
    reading: Progress | None = None,
    answering: Progress | None = None,
) -> tuple[Answerer, dict[str, TaskAnswers]]:
    """Load a run or an ensemble, and predict the dev rows of its tasks.

    Predictions are cached in the folder if it is writable. The result is empty without dev files.
    """
    model = load(run, device=device) if calibrated else load_to_calibrate(run, device=device)
    datasets = model.load_split("dev", data=data, progress=reading)
    return model, _answer(model, datasets, device, answering)


def answer_left_out(
    run: Path,
    *,
    data: str | None = None,
    device: str = "auto",
    reading: Progress | None = None,
    answering: Progress | None = None,
) -> tuple[Answerer, dict[str, TaskAnswers]]:
    """Load a run and predict the training rows that it left out, of each task's first file.

    Tasks without left-out rows are not in the result.
    """
    model = load(run, device=device, calibrated=False)
    config = _read_left_out(model.config, run)
    datasets: dict[str, Dataset] = {}
    for name in config.tasks:
        with suppress(NoRowsError):  # a part of few rows, or of few groups, may be empty
            datasets |= model.read(config, "dev", data=data, tasks=[name], progress=reading)
    return model, _answer(model, datasets, device, answering)


def _read_left_out(config: RunConfig, run: Path) -> RunConfig:
    """Return a recipe whose dev rows are the rows that a run left out.

    Only the first training file is used: other files may be labelled differently from dev.
    """
    if not config.data.leave_out:
        raise UsageError(
            f"{run} left out no training rows; train it with data.folds and data.leave_out = true, "
            "or with a recipe that sets ensemble.folds"
        )
    every = {"count": None, "fraction": None}  # rows that were not drawn were not trained on
    tasks = {
        name: task.model_copy(update={"train": task.train[:1], **every})
        for name, task in config.tasks.items()
    }
    dealt = config.data.model_copy(update={"leave_out": False})
    return config.model_copy(update={"data": dealt, "tasks": tasks})


def _answer(
    model: Answerer, datasets: dict[str, Dataset], device: str, answering: Progress | None
) -> dict[str, TaskAnswers]:
    """Predict rows, or return their predictions from the cache in the model's folder."""
    watched = model if answering is None else model.watched(answering)
    # Devices and precisions round differently, so they are in the key.
    depends = [model.identify(), choose_device(device).type, model.config.precision]
    depends += _hash_plugins(model)
    found = {}
    for name, dataset in datasets.items():
        assert dataset.labels is not None
        both = ["both orders"] if model.tasks[name].spec.both_orders else []
        path = model.folder / FOLDER / f"{_hash([*depends, name, dataset.key, *both])}.npy"
        kept = _read(path, len(dataset))
        if kept is None:
            kept = watched.answer_uncalibrated(name, dataset)
            _write(path, kept)
        task = model.tasks[name]
        found[name] = TaskAnswers(
            task.spec,
            task.metric,
            dataset,
            dataset.labels.numpy().astype(np.float64),
            kept,
            model.scalings.get(name),
        )
    return found


def _hash_plugins(model: Answerer) -> list[str]:
    """Return the hashes of the plugins of all members."""
    members = model.members if isinstance(model, Ensemble) else (model,)
    return [digest for member in members for digest in hash_plugins(member.config).values()]


def _hash(depends: list[str]) -> str:
    return hashlib.sha256(json.dumps(depends).encode()).hexdigest()[:32]


def _read(path: Path, num_rows: int) -> Floats | None:
    try:
        kept: Floats = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):  # absent, or damaged
        return None
    return kept if len(kept) == num_rows else None


def _write(path: Path, answers: Floats) -> None:
    with suppress(OSError, DiskFullError):  # they can be computed again
        path.parent.mkdir(exist_ok=True)
        with atomic_path(path) as temporary, temporary.open("wb") as file:
            np.save(file, answers, allow_pickle=False)
