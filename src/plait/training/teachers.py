"""Predictions of a stage's teacher on the training rows, computed once and kept in the run folder.

`plait.inference` loads runs and ensembles; the caller passes the function that opens a teacher.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from plait.errors import PlaitError, RecipeError, RunError
from plait.model.weights import read_metadata, read_weights, write_weights
from plait.tasks import TaskSpec
from plait.training.stages import StageKind

if TYPE_CHECKING:
    from torch import Tensor

    from plait.config import RunConfig
    from plait.data import Dataset
    from plait.inference.folders import RunFolder
    from plait.tasks.kind import Floats
    from plait.training.plan import Plan, StagePlan

Progress = Callable[[str, int, int], None]
"""Called with the task, the rows predicted so far and the total number of rows."""

Members = list[dict[str, str]]
"""The runs of a teacher: `run` is the folder, `sha256` the hash of the weights, `how` the way an
ensemble combines predictions, `calibration` the hash of a calibrated teacher's calibration."""


class Teacher(Protocol):
    """A run or an ensemble that predicts the training rows of another run."""

    @property
    def members(self) -> Members:
        """Return the runs that predict."""

    def answer(
        self,
        config: RunConfig,
        tasks: Sequence[str],
        data: str | None,
        progress: Progress,
        *,
        unseen: bool,
    ) -> dict[str, Floats]:
        """Predict the training rows of a recipe's tasks, in the order the recipe reads them.

        Rows without labels follow rows with labels. With `unseen`, only members that were not
        trained on a row predict it.
        """


OpenTeacher = Callable[[Path, Mapping[str, TaskSpec], StageKind], Teacher]
"""Open a teacher: called with its folder, the tasks it must have, and the stage kind."""


@dataclass(slots=True)
class TeacherAnswers:
    """The teachers of a run's stages and their predictions."""

    plan: Plan
    folder: RunFolder
    open_teacher: OpenTeacher | None
    data: str | None
    """Replaces the recipe's data root."""
    teachers: dict[str, Teacher] = field(default_factory=dict)
    """By stage."""
    facts: dict[str, Members] = field(default_factory=dict)
    """By stage, for run.json."""
    folders: dict[str, str] = field(default_factory=dict)
    """By stage, for run.json; the folder of an ensemble is not in its members."""

    def open(self, first: int) -> None:
        """Open the teachers of the stages from index `first`; RecipeError if one does not fit."""
        info = self.folder.info
        before = self.folder.read_json(info) if info.is_file() else {}
        for stage in self.plan.stages[first:]:
            name, kind = stage.name, stage.kind
            if not (place := kind.teacher):
                continue
            if self._path(name).is_file() and not Path(place).exists():
                self.facts[name] = self._read_notes(name).get("members", [])
                if known := before.get("teacher_folders", {}).get(name):
                    self.folders[name] = known  # its folder when it was last opened
                continue  # its predictions are here
            if self.open_teacher is None:
                raise RecipeError(
                    f"stage.{name}.kind has a teacher, but `open_teacher` is missing; "
                    "call plait.train"
                )
            try:
                teacher = self.open_teacher(Path(place), self._specs(stage), kind)
            except PlaitError as error:
                raise RecipeError(f"stage.{name}.kind.teacher: {error}") from error
            if kind.unseen and any(member.get("how") != "mean" for member in teacher.members):
                raise RecipeError(
                    f"stage.{name}.kind.unseen needs an ensemble that averages its members' "
                    f"predictions (how = 'mean'), and {place} is not one"
                )
            self.teachers[name], self.facts[name] = teacher, teacher.members
            self.folders[name] = str(Path(place).resolve())

    def describe(self) -> dict[str, Any]:
        """Return the teachers and their folders, for run.json; empty without teachers."""
        facts = {"teachers": self.facts, "teacher_folders": self.folders}
        return {key: found for key, found in facts.items() if found}

    def load_or_ask(
        self,
        index: int,
        train: Mapping[str, Dataset],
        unlabelled: Mapping[str, Dataset],
        progress: Progress,
    ) -> dict[str, Tensor]:
        """Return the teacher's predictions by task; empty if the stage has no teacher.

        Probabilities [rows, classes] or scores [rows], fp32; rows without labels follow rows with
        labels.
        """
        stage = self.plan.stages[index]
        name = stage.name
        if name not in self.facts:
            return {}
        path, specs = self._path(name), self._specs(stage)
        keys = {task: train[task].key for task in specs}
        more = {task: unlabelled[task].key for task in specs if task in unlabelled}
        unseen = stage.kind.unseen
        notes: dict[str, Any] = {"members": self.facts[name], "data": keys}
        notes |= ({"unlabelled": more} if more else {}) | ({"unseen": True} if unseen else {})
        if path.is_file() and self._read_notes(name) == notes:
            return read_weights(path)
        if name not in self.teachers:
            raise RunError(
                f"{path} has predictions for other rows, and the teacher of stage.{name} does not "
                "exist any more; restore it"
            )
        teacher = self.teachers[name]
        found = teacher.answer(self.plan.recipe, list(specs), self.data, progress, unseen=unseen)
        answers = {task: torch.from_numpy(values).float() for task, values in found.items()}
        for task, values in answers.items():
            count = len(train[task]) + (len(unlabelled[task]) if task in unlabelled else 0)
            assert len(values) == count, f"{task}: the teacher read other rows"
        path.parent.mkdir(exist_ok=True)
        write_weights(path, answers, {"notes": json.dumps(notes)})
        return answers

    def check(self, before: Mapping[str, Any]) -> None:
        """Raise RunError if the teachers differ from those in run.json."""
        for name, members in self.facts.items():
            known = before.get("teachers", {}).get(name, [])
            if _identify(known) != _identify(members):
                raise RunError(
                    f"the teacher of stage.{name} changed since {self.folder.path} was started; "
                    "restore it, or train into another --out"
                )

    def _specs(self, stage: StagePlan) -> dict[str, TaskSpec]:
        return {task: self.plan.recipe.tasks[task] for task in stage.taught}

    def _path(self, name: str) -> Path:
        return self.folder.teacher / f"{name}.safetensors"

    def _read_notes(self, name: str) -> dict[str, Any]:
        """Return the metadata of saved predictions: the models and the rows."""
        path = self._path(name)
        try:
            notes: dict[str, Any] = json.loads(read_metadata(path)["notes"])
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(
                f"{path} does not name the teacher of its predictions; delete it"
            ) from error
        return notes


def _identify(members: Members) -> list[tuple[str, ...]]:
    """Return what identifies a teacher, independent of its folders."""
    identity = ("sha256", "how", "calibration")
    return [tuple(member.get(key, "") for key in identity) for member in members]
