"""Several runs become one that answers for all of them: a small folder, and its Ensemble.

ensemble.toml           the members, how their answers become one, and the tasks they share
card.md                 what they are together, for people
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
    """Read a run's best model, the models of an ensemble, or the graphs of an export.

    `calibrated=False` leaves probabilities as the model gives them, whatever was fitted later.
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
    """Read a model without its own scalings; members of an ensemble keep theirs."""
    how: dict[str, Any] = {"device": device, "precision": precision, "calibrated": False}
    if is_ensemble(Path(run)):
        return Ensemble.load(run, members_calibrated=True, **how)
    return load(run, **how)


def is_ensemble(folder: Path) -> bool:
    """Say whether a folder holds an ensemble."""
    return (folder / FILE).is_file()


# --- the folder --------------------------------------------------------------------------


def make_ensemble(runs: Sequence[str | Path], out: str | Path, how: How = "mode") -> Path:
    """Write an ensemble of runs that share their tasks; they stay where they are."""
    folder = Path(out)
    check_place(folder)
    members = [Path(run) for run in runs]
    if not members:
        raise RunError("an ensemble has at least one member")
    places = [member.resolve() for member in members]
    for number, (member, place) in enumerate(zip(members, places, strict=True)):
        if place in places[:number]:
            raise RunError(f"{member} is named twice; every member has one vote")
    write_ensemble(members, folder, how)
    write_card(folder)
    return folder


def write_ensemble(members: Sequence[Path], folder: Path, how: How) -> None:
    """Write the file that makes a folder the ensemble of some runs."""
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
    """Return the runs that a run or an ensemble consists of, and what its tasks are."""
    if not is_ensemble(folder):
        return [folder], _read_outline(folder)
    _, places, tasks = _read_file(folder / FILE)
    for place in places:
        if not place.is_dir():
            raise RunError(f"{folder / FILE} names a member {place}, which is not there")
        compare_tasks(str(place), _read_outline(place), str(folder), tasks)
    return places, tasks


def read_calibrations(
    folder: Path, *, together: bool = True
) -> tuple[list[dict[str, Scaling]], dict[str, Scaling]]:
    """Return what each run of a run or an ensemble is scaled by, and all of them `together`.

    No model is loaded; a calibration that would not be taken with one is refused here, too.
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
    """Return a hash of how and of whom: the members' weights, and what they are scaled by."""
    content = json.dumps([how, [[own, plain_scalings(s)] for own, s in members]], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


def read_how(folder: Path) -> How:
    """Return how the answers of an ensemble's members become one."""
    return _read_file(folder / FILE)[0]


def _read_outline(member: Path) -> dict[str, Any]:
    """Return what a run's tasks are, without loading its model."""
    if is_ensemble(member):
        raise RunError(f"{member} is an ensemble itself; name its members instead")
    run = RunFolder(member)
    if not member.is_dir():
        raise RunError(f"there is no run at {member}")
    tasks = run.read_config().tasks
    run.require_model()
    return {name: outline(task) for name, task in tasks.items()}


def outline(spec: TaskSpec) -> dict[str, Any]:
    """Return what of a task its answers depend on; members may differ in all else."""
    return {"kind": spec.kind.name, "num_texts": len(spec.text), **spec.kind.meaning()}


def compare_tasks(
    member: str, found: Mapping[str, Any], other: str, wanted: Mapping[str, Any]
) -> None:
    """Refuse a member whose tasks are not those of the others."""
    for name in (*wanted, *found):
        if name not in found or name not in wanted:
            has, lacks = (other, member) if name in wanted else (member, other)
            raise RunError(
                f"{has} has a task {name!r} and {lacks} has none; members share all their tasks"
            )
        for key, value in wanted[name].items():
            if found[name].get(key) != value:
                raise RunError(
                    f"task {name!r} has {key} {found[name].get(key)!r} in {member}, but "
                    f"{value!r} in {other}; members share what their tasks mean"
                )


def _spell(member: Path, folder: Path) -> str:
    """Write a member's path as seen from the folder, so that both can move together."""
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
        raise RunError(f"{path} is not an ensemble that plait wrote: {reason}") from error
    if how not in ("mode", "mean"):
        raise RunError(f"{path}: how = {how!r}{suggest(str(how), ('mode', 'mean'))}")
    if not places:
        raise RunError(f"{path} names no members")
    return how, places, tasks


def count_in_part(progress: Progress, number: int, count: int) -> Progress:
    """Tell of rows that one of several has answered: in part, until all have."""
    return lambda task, done, total: progress(task, (number * total + done) // count, total)


# --- the ensemble ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Views(Dataset):
    """One data set as each member reads it; to everybody else, as the first one does."""

    views: tuple[Dataset, ...] = ()

    @classmethod
    def of(cls, views: Sequence[Dataset]) -> Views:
        """Gather the members' views."""
        first = {field.name: getattr(views[0], field.name) for field in fields(Dataset)}
        return cls(**first, views=tuple(views))


@dataclass(frozen=True, slots=True)
class Ensemble(Answerer):
    """Several trained models seen as one.

    Their files, columns and data root are those of the first member's recipe; each member reads
    the texts with its own tokenizer. All of them are in memory at once.
    """

    members: tuple[Predictor, ...]
    how: How = "mode"
    """mode: the class most members choose, the median of their scores; mean: the mean of both."""

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
        """Read an ensemble's members, each with its own calibration, and the ensemble's.

        `members_calibrated` is as `calibrated` unless given.
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
        """Return a hash of how and of whom: the members' weights, and what they are scaled by."""
        named = [(member.identify(), member.scalings) for member in self.members]
        return _identify(self.how, named)

    def tokenise(self, texts: Sequence[tuple[str, ...]], *, blank: bool = False) -> Dataset:
        """Make a data set of texts given by hand, which may be `blank` only if that is said."""
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
        """Read a split of any recipe's files, whose tasks this has too, as each member reads them.

        Files and seed are the recipe's, so that all see the same rows in the same order.
        """
        views = self._each_view(
            lambda member: member.read(
                config, split, data=data, tasks=tasks, labelled=labelled, progress=progress
            )
        )
        return {name: Views.of([view[name] for view in views]) for name in views[0]}

    def _each_view(self, read: Callable[[Predictor], T]) -> list[T]:
        """Read for every member; those that read alike share what is read."""
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
        """Return what the members, each calibrated if it is, come to in the data's order."""
        assert isinstance(dataset, Views)
        pairs = zip(self.members, dataset.views, strict=True)
        return self._combine(task, [m.answer(task, view, rows) for m, view in pairs])

    def _combine(self, task: str, answers: Sequence[Floats]) -> Floats:
        return self.tasks[task].spec.kind.combine(np.stack(answers), self.how)

    def answer_together(self, tasks: Sequence[str], dataset: Dataset) -> dict[str, Floats]:
        """Return what `answer` returns, with as few passes as each member needs."""
        assert isinstance(dataset, Views)
        pairs = zip(self.members, dataset.views, strict=True)
        each = [member.answer_together(tasks, view) for member, view in pairs]
        return {
            task: self._calibrate(task, self._combine(task, [found[task] for found in each]))
            for task in tasks
        }

    def share_passes(self, tasks: Sequence[str]) -> list[tuple[str, ...]]:
        """Group tasks that share a pass in every member."""
        groups: dict[tuple[object, ...], list[str]] = {}
        each = [member.share_passes(tasks) for member in self.members]
        for task in tasks:
            places = tuple(next(group for group in some if task in group) for some in each)
            groups.setdefault(places, []).append(task)
        return [tuple(group) for group in groups.values()]

    def fingerprint(self) -> str:
        """Name the answers: equal where answers are bound to be the same, to the last bit."""
        scaled = json.dumps(plain_scalings(self.scalings), sort_keys=True)
        facts = [self.how, scaled, *(member.fingerprint() for member in self.members)]
        return hashlib.sha256(" ".join(facts).encode()).hexdigest()

    def watched(self, progress: Progress) -> Self:
        """Return the same, calling `progress` with the task, rows done and rows in all."""
        count = len(self.members)
        members = tuple(
            member.watched(count_in_part(progress, i, count))
            for i, member in enumerate(self.members)
        )
        return replace(self, members=members)
