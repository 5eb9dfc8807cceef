"""Combine runs into an ensemble: the class Ensemble and its folder.

ensemble.toml           the members, the method, and the common tasks
card.md                 the model card
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np
import tomli_w

from plait.data import Dataset
from plait.data.storage import hash_file, write_text
from plait.errors import RunError, suggest
from plait.inference.calibration import plain_scalings, read_scalings
from plait.inference.card import write_card
from plait.inference.exported import ExportedModel, is_exported
from plait.inference.folders import RunFolder, check_place
from plait.inference.predictor import Answerer, Predictor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch

    from plait.config import RunConfig
    from plait.data import SplitName
    from plait.inference.calibration import Scaling
    from plait.inference.predictor import Progress
    from plait.tasks import TaskSpec
    from plait.tasks.kind import Floats

How = Literal["mode", "mean"]
FILE = "ensemble.toml"
CARD = "card.md"

T = TypeVar("T")


def load(
    run: str | Path, *, device: str = "auto", precision: str = "run", calibrated: bool = True
) -> Predictor | Ensemble | ExportedModel:
    """Load a run's best model, the models of an ensemble, or the graphs of an export.

    `calibrated=False` returns uncalibrated probabilities.
    """
    kind: type[Predictor | Ensemble | ExportedModel] = Predictor
    if is_ensemble(Path(run)):
        kind = Ensemble
    elif is_exported(Path(run)):
        kind = ExportedModel
    return kind.load(run, device=device, precision=precision, calibrated=calibrated)


def load_to_calibrate(
    run: str | Path, *, device: str = "auto", precision: str = "run"
) -> Predictor | Ensemble | ExportedModel:
    """Load a model without its own scalings; members of an ensemble keep theirs."""
    how: dict[str, Any] = {"device": device, "precision": precision, "calibrated": False}
    if is_ensemble(Path(run)):
        return Ensemble.load(run, members_calibrated=True, **how)
    return load(run, **how)


def is_ensemble(folder: Path) -> bool:
    """Return whether a folder holds an ensemble."""
    return (folder / FILE).is_file()


# --- the folder --------------------------------------------------------------------------


def make_ensemble(runs: Sequence[str | Path], out: str | Path, how: How = "mode") -> Path:
    """Write the folder of an ensemble; the runs must have the same tasks and are not copied."""
    folder = Path(out)
    check_place(folder)
    members = [Path(run) for run in runs]
    if not members:
        raise RunError("an ensemble needs at least one member")
    places = [member.resolve() for member in members]
    for number, (member, place) in enumerate(zip(members, places, strict=True)):
        if place in places[:number]:
            raise RunError(f"{member} is named twice; each member can be named once")
    write_ensemble(members, folder, how)
    write_card(folder)
    return folder


def write_ensemble(members: Sequence[Path], folder: Path, how: How) -> None:
    """Write ensemble.toml."""
    shared: dict[str, Any] = {}
    for member in members:
        outline = _read_outline(member)
        shared = shared or outline
        compare_tasks(str(member), outline, str(members[0]), shared)
    folder.mkdir(parents=True, exist_ok=True)
    places = [member.resolve() for member in members]
    table = {"how": how, "members": [_spell(place, folder) for place in places], "tasks": shared}
    write_text(folder / FILE, tomli_w.dumps(table))


def read_outlines(folder: Path) -> tuple[list[Path], dict[str, Any]]:
    """Return the member runs of a run or an ensemble, and the signatures of its tasks."""
    if not is_ensemble(folder):
        return [folder], _read_outline(folder)
    _, places, tasks = _read_file(folder / FILE)
    for place in places:
        if not place.is_dir():
            raise RunError(f"{folder / FILE} names the member {place}, which does not exist")
        compare_tasks(str(place), _read_outline(place), str(folder), tasks)
    return places, tasks


def read_calibrations(
    folder: Path, *, together: bool = True
) -> tuple[list[dict[str, Scaling]], dict[str, Scaling]]:
    """Return the scalings of each member, and those of the ensemble (`together`).

    No model is loaded. Invalid calibrations raise the same errors as loading the model.
    """
    places, _ = read_outlines(folder)
    runs = [RunFolder(place) for place in places]
    hashes = [hash_file(run.weights) for run in runs]
    tasks = [run.read_config().tasks for run in runs]
    members = [
        read_scalings(run.path, specs, partial(str, own))
        for run, specs, own in zip(runs, tasks, hashes, strict=True)
    ]
    if not together or not is_ensemble(folder):
        return members, {}
    named = list(zip(hashes, members, strict=True))
    return members, read_scalings(folder, tasks[0], lambda: _identify(read_how(folder), named))


def _identify(how: How, members: Sequence[tuple[str, Mapping[str, Scaling]]]) -> str:
    """Return a hash of the method, and of the members' weights and scalings."""
    content = json.dumps([how, [[own, plain_scalings(s)] for own, s in members]], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def read_how(folder: Path) -> How:
    """Return the method of an ensemble, vote or mean."""
    return _read_file(folder / FILE)[0]


def _read_outline(member: Path) -> dict[str, Any]:
    """Return the signatures of a run's tasks, without loading its model."""
    if is_ensemble(member):
        raise RunError(f"{member} is an ensemble; name its members instead")
    run = RunFolder(member)
    if not member.is_dir():
        raise RunError(f"there is no run at {member}")
    tasks = run.read_config().tasks
    run.require_model()
    return {name: outline(task) for name, task in tasks.items()}


def outline(spec: TaskSpec) -> dict[str, Any]:
    """Return the properties of a task that must be equal in all members."""
    return {"kind": spec.kind.name, "num_texts": len(spec.text), **spec.kind.meaning()}


def compare_tasks(
    member: str, found: Mapping[str, Any], other: str, wanted: Mapping[str, Any]
) -> None:
    """Raise RunError for a member whose tasks differ from those of the others."""
    for name in (*wanted, *found):
        if name not in found or name not in wanted:
            has, lacks = (other, member) if name in wanted else (member, other)
            raise RunError(
                f"{has} has a task {name!r} and {lacks} does not; all members need the same tasks"
            )
        for key, value in wanted[name].items():
            if found[name].get(key) != value:
                raise RunError(
                    f"task {name!r} has {key} {found[name].get(key)!r} in {member}, but "
                    f"{value!r} in {other}; members must agree on it"
                )


def _spell(member: Path, folder: Path) -> str:
    """Return a member's path relative to the folder, so that both can be moved together."""
    try:
        return Path(os.path.relpath(member, folder.resolve())).as_posix()
    except ValueError:  # on another drive
        return member.as_posix()


def _read_file(path: Path) -> tuple[How, list[Path], dict[str, Any]]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        how, members = table["how"], table["members"]
        tasks = {name: dict(task) for name, task in table["tasks"].items()}
        places = [path.parent / member for member in members]
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # TOML's are ValueErrors
        reason = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise RunError(f"{path} is not a valid ensemble: {reason}") from error
    if how not in ("mode", "mean"):
        raise RunError(f"{path}: how = {how!r}{suggest(str(how), ('mode', 'mean'))}")
    if not places:
        raise RunError(f"{path} names no members")
    return how, places, tasks


def count_in_part(progress: Progress, number: int, count: int) -> Progress:
    """Convert the progress of one of several passes to that of all passes."""
    return lambda task, done, total: progress(task, (number * total + done) // count, total)


# --- the ensemble ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Views(Dataset):
    """The datasets of all members for the same rows; used as a dataset, it is the first one."""

    views: tuple[Dataset, ...] = ()

    @classmethod
    def of(cls, views: Sequence[Dataset]) -> Views:
        """Store the members' datasets."""
        first = {field.name: getattr(views[0], field.name) for field in fields(Dataset)}
        return cls(**first, views=tuple(views))


@dataclass(frozen=True, slots=True)
class Ensemble(Answerer):
    """Several trained models with combined predictions.

    Files, columns and data root are those of the first member's recipe. Each member reads the texts
    with its own tokenizer. All members are in memory at once.
    """

    members: tuple[Predictor, ...]
    how: How = "mode"
    """mode: the most frequent class, the median of scores; mean: the mean of both."""

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str = "auto",
        precision: str = "run",
        calibrated: bool = True,
        members_calibrated: bool | None = None,
    ) -> Ensemble:
        """Load an ensemble's members with their calibrations, and the ensemble's calibration.

        `members_calibrated` is equal to `calibrated` by default.
        """
        path = Path(folder)
        if not is_ensemble(path):
            raise RunError(f"{path} is not an ensemble: it has no {FILE}")
        how, _, _ = _read_file(path / FILE)
        places, _ = read_outlines(path)
        scaled = calibrated if members_calibrated is None else members_calibrated
        members = [
            Predictor.load(p, device=device, precision=precision, calibrated=scaled) for p in places
        ]
        first = members[0]
        made = cls(path, first.config, first.tasks, {}, tuple(members), how)
        if not calibrated:
            return made
        return replace(made, scalings=read_scalings(path, made.config.tasks, made.identify))

    def identify(self) -> str:
        """Return a hash of the method, and of the members' weights and scalings."""
        named = [(member.identify(), member.scalings) for member in self.members]
        return _identify(self.how, named)

    def tokenise(self, texts: Sequence[tuple[str, ...]], *, blank: bool = False) -> Dataset:
        """Return a dataset of the given texts; empty texts are an error unless `blank`."""
        return Views.of(self._each_view(lambda member: member.tokenise(texts, blank=blank)))

    def read(
        self,
        config: RunConfig,
        split: SplitName,
        *,
        data: str | None = None,
        tasks: Sequence[str] | None = None,
        labelled: bool = True,
        progress: Progress | None = None,
    ) -> dict[str, Dataset]:
        """Read a split of a recipe's files with the tokenizer of each member.

        Files and seed are those of the recipe, so all members see the same rows in the same order.
        """
        views = self._each_view(
            lambda member: member.read(
                config, split, data=data, tasks=tasks, labelled=labelled, progress=progress
            )
        )
        return {name: Views.of([view[name] for view in views]) for name in views[0]}

    def _each_view(self, read: Callable[[Predictor], T]) -> list[T]:
        """Read a dataset for every member; members with equal tokenizers share one."""
        known: dict[tuple[bytes, int, str], T] = {}
        views = []
        for member in self.members:
            files, encoder = RunFolder(member.folder), member.config.encoder
            key = (files.tokenizer.read_bytes(), encoder.max_length, encoder.truncate)
            if key not in known:
                known[key] = read(member)
            views.append(known[key])
        return views

    def answer_uncalibrated(
        self, task: str, dataset: Dataset, rows: torch.Tensor | None = None
    ) -> Floats:
        """Return the combined predictions of the members, in the order of the dataset."""
        assert isinstance(dataset, Views)
        pairs = zip(self.members, dataset.views, strict=True)
        return self._combine(task, [m.answer(task, view, rows) for m, view in pairs])

    def _combine(self, task: str, answers: Sequence[Floats]) -> Floats:
        return self.tasks[task].spec.kind.combine(np.stack(answers), self.how)

    def answer_together(self, tasks: Sequence[str], dataset: Dataset) -> dict[str, Floats]:
        """Return what `answer` returns for several tasks, with few encoder passes per member."""
        assert isinstance(dataset, Views)
        pairs = zip(self.members, dataset.views, strict=True)
        each = [member.answer_together(tasks, view) for member, view in pairs]
        return {
            task: self._calibrate(task, self._combine(task, [found[task] for found in each]))
            for task in tasks
        }

    def share_passes(self, tasks: Sequence[str]) -> list[tuple[str, ...]]:
        """Group tasks that share an encoder pass in every member."""
        groups: dict[tuple[object, ...], list[str]] = {}
        each = [member.share_passes(tasks) for member in self.members]
        for task in tasks:
            places = tuple(next(group for group in some if task in group) for some in each)
            groups.setdefault(places, []).append(task)
        return [tuple(group) for group in groups.values()]

    def fingerprint(self) -> str:
        """Return a hash that is equal for models whose predictions are bit-identical."""
        scaled = json.dumps(plain_scalings(self.scalings), sort_keys=True)
        facts = [self.how, scaled, *(member.fingerprint() for member in self.members)]
        return hashlib.sha256(" ".join(facts).encode()).hexdigest()

    def watched(self, progress: Progress) -> Self:
        """Return a copy that calls `progress` with the task, the rows done and the total."""
        count = len(self.members)
        members = tuple(
            member.watched(count_in_part(progress, i, count))
            for i, member in enumerate(self.members)
        )
        return replace(self, members=members)
