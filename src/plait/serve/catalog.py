"""Names become run folders, and loaded runs become what everybody may know of them.

A name is looked up among those found at the start and never becomes part of a path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.errors import RunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from plait.config import TaskConfig
    from plait.inference.predictor import Answerer

_NAME = re.compile(r"[\w][\w .+-]{0,127}")
"""What a folder is called that can be asked for."""


def name_runs(folders: Sequence[Path]) -> dict[str, Path]:
    """Name runs after their folders; two of one name cannot be told apart."""
    found: dict[str, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise RunError(f"there is no run at {folder}")
        path = folder.resolve()
        if not _NAME.fullmatch(path.name):
            raise RunError(f"{folder} has a name that no request can give; rename the folder")
        if found.get(path.name, path) != path:
            raise RunError(
                f"{folder} and {found[path.name]} are both called {path.name!r}, and runs are "
                "asked for by name; rename one of the folders"
            )
        found[path.name] = path
    return found


def list_runs(folder: Path) -> dict[str, Path]:
    """Return the folders directly below one, by name; links lead elsewhere and are left out."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; --runs names one that holds runs")
    inside = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.is_symlink()]
    return {path.name: path.resolve() for path in inside if _NAME.fullmatch(path.name)}


@dataclass(frozen=True, slots=True)
class TaskFacts:
    """What a client must know to ask a task and to read its answers."""

    name: str
    kind: str
    labels: tuple[str, ...]
    range: tuple[float, float] | None
    num_texts: int
    columns: tuple[str, ...] = ()
    """What its texts are called in its own files."""
    about: str = ""
    label_separator: str | None = None
    """What stands between several labels in its own files."""

    @classmethod
    def of(cls, name: str, task: TaskConfig) -> TaskFacts:
        """Tell a task's facts."""
        return cls(
            name,
            task.kind.name,
            task.labels,
            task.range if task.kind.form == "number" else None,
            len(task.text),
            task.text,
            task.about,
            task.label_separator if task.kind.form == "independent" else None,
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "labels": list(self.labels),
            "range": None if self.range is None else list(self.range),
            "num_texts": self.num_texts,
            "columns": list(self.columns),
            "about": self.about,
            "label_separator": self.label_separator,
        }


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a server says of a run; where it lies is nobody's business."""

    name: str
    tasks: dict[str, TaskFacts]
    passes: tuple[tuple[str, ...], ...]
    """Tasks that cost one pass of the encoder together."""
    embeds: bool
    """Whether it has vectors to give: an ensemble has several encoders and no common one."""
    fingerprint: str = ""
    """Of its answers, by which one knows whether a folder still holds the same model."""

    @classmethod
    def of(cls, name: str, model: Answerer) -> RunFacts:
        """Tell a loaded run's facts."""
        tasks = {task: TaskFacts.of(task, model.config.tasks[task]) for task in model.tasks}
        passes = tuple(model.share_passes(list(tasks)))
        return cls(name, tasks, passes, hasattr(model, "embed"), model.fingerprint())

    def pass_of(self, task: str) -> tuple[str, ...]:
        """Return the tasks that one shares its pass with."""
        return next(group for group in self.passes if task in group)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"name": self.name, "tasks": list(self.tasks), "embeds": self.embeds}


@dataclass(frozen=True, slots=True)
class Catalog:
    """The runs that are served."""

    runs: Mapping[str, RunFacts]
    left_out: Mapping[str, str]
    """Folders that were looked into and are not served, and why."""
