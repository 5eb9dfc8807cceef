"""A stage's teacher becomes answers to the training rows, asked once and kept in the run's folder.

How a run or an ensemble is loaded and made to answer is for rooms that come later to know; they
hand in what opens one.
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
"""Called with the task, rows answered and rows in all."""

Members = list[dict[str, str]]
"""The runs a teacher is made of: `run`, their folder, `sha256` of their weights, in an ensemble
`how` their answers become one, and of a calibrated teacher the hash of its `calibration`."""


class Teacher(Protocol):
    """A run or an ensemble that answers another's training rows."""

    @property
    def members(self) -> Members:
        """Say which models answer."""

    def answer(
        self,
        config: RunConfig,
        tasks: Sequence[str],
        data: str | None,
        progress: Progress,
        *,
        unseen: bool,
    ) -> dict[str, Floats]:
        """Answer the training rows of a recipe's tasks, in the order the recipe reads them.

        Behind those with labels come those without. With `unseen`, those members answer a row
        that were not trained on it.
        """


OpenTeacher = Callable[[Path, Mapping[str, TaskSpec], StageKind], Teacher]
"""A folder, the tasks that its run or ensemble must have, and how it is to answer, become a
teacher."""


@dataclass(slots=True)
class Lessons:
    """The teachers of a run's stages and what they answered."""

    plan: Plan
    folder: RunFolder
    open_teacher: OpenTeacher | None
    data: str | None
    """Stands in for the recipe's data root."""
    teachers: dict[str, Teacher] = field(default_factory=dict)
    """By stage."""
    facts: dict[str, Members] = field(default_factory=dict)
    """By stage, for run.json."""
    folders: dict[str, str] = field(default_factory=dict)
    """By stage, for run.json: an ensemble is more than its members."""

    def open(self, first: int) -> None:
        """Refuse teachers that cannot teach the stages from number `first` on."""
        info = self.folder.info
        before = self.folder.read_json(info) if info.is_file() else {}
        for stage in self.plan.stages[first:]:
            name, kind = stage.name, stage.kind
            if not (place := kind.teacher):
                continue
            if self._path(name).is_file() and not Path(place).exists():
                self.facts[name] = self._read_notes(name).get("members", [])
                if known := before.get("teacher_folders", {}).get(name):
                    self.folders[name] = known  # where it was, when it could be asked
                continue  # all that was wanted of it is here
            if self.open_teacher is None:
                raise RecipeError(
                    f"stage.{name}.kind has a teacher, whom training alone cannot ask; "
                    "call plait.train"
                )
            try:
                teacher = self.open_teacher(Path(place), self._specs(stage), kind)
            except PlaitError as error:
                raise RecipeError(f"stage.{name}.kind.teacher: {error}") from error
            if kind.unseen and any(member.get("how") != "mean" for member in teacher.members):
                raise RecipeError(
                    f"stage.{name}.kind.unseen is for an ensemble by the mean of its members' "
                    f"answers, and {place} is none"
                )
            self.teachers[name], self.facts[name] = teacher, teacher.members
            self.folders[name] = str(Path(place).resolve())

    def describe(self) -> dict[str, Any]:
        """Say for run.json who the teachers are, and in which folders; nothing without any."""
        told = {"teachers": self.facts, "teacher_folders": self.folders}
        return {key: found for key, found in told.items() if found}

    def learn(
        self,
        index: int,
        train: Mapping[str, Dataset],
        unlabelled: Mapping[str, Dataset],
        progress: Progress,
    ) -> dict[str, Tensor]:
        """Return the answers to a stage's training rows by task; none where it has no teacher.

        Probabilities [rows, classes] or scores [rows], fp32; behind those to rows with labels
        those to rows without.
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
                f"{path} holds answers to other rows, and the teacher of stage.{name} is gone; "
                "bring it back"
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
        """Refuse to go on with other teachers than those of run.json."""
        for name, members in self.facts.items():
            known = before.get("teachers", {}).get(name, [])
            if _identify(known) != _identify(members):
                raise RunError(
                    f"the teacher of stage.{name} changed since {self.folder.path} was started; "
                    "bring it back as it was, or train under another --out"
                )

    def _specs(self, stage: StagePlan) -> dict[str, TaskSpec]:
        return {task: self.plan.recipe.tasks[task] for task in stage.taught}

    def _path(self, name: str) -> Path:
        return self.folder.teacher / f"{name}.safetensors"

    def _read_notes(self, name: str) -> dict[str, Any]:
        """Return which models answered which rows."""
        path = self._path(name)
        try:
            notes: dict[str, Any] = json.loads(read_metadata(path)["notes"])
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{path} does not say whose answers it holds; delete it") from error
        return notes


def _identify(members: Members) -> list[tuple[str, ...]]:
    """Return what tells a teacher from another, wherever its runs are."""
    told = ("sha256", "how", "calibration")
    return [tuple(member.get(key, "") for key in told) for member in members]
