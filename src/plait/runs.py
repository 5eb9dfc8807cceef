"""A recipe becomes a run, or an ensemble of runs: training, by all that runs can do together.

members/                an ensemble's runs, a folder each
ensemble.toml           which they are, how their answers become one
scores.json             dev scores of their common answers
card.md                 what they are together, for people
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.calibration import plain_scalings
from plait.config import EnsembleConfig, lists_members, read_ensemble, read_recipe
from plait.data import cache_root
from plait.data.cache import load_or_build
from plait.data.fingerprints import is_among
from plait.distributed import ALONE
from plait.ensemble import (
    Ensemble,
    Views,
    compare_tasks,
    count_in_part,
    is_ensemble,
    load,
    load_to_calibrate,
    outline,
    read_calibrations,
    read_how,
    read_outlines,
    write_ensemble,
)
from plait.errors import RecipeError, RunError, UsageError
from plait.fitting.calibrate import calibrate, undo
from plait.training import run
from plait.training.build import build_tasks, check_parts
from plait.training.cards import card_renewed
from plait.training.checkpoint import hash_file, write_text
from plait.training.folder import RunFolder, is_taken
from plait.training.run import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plait.calibration import Scaling
    from plait.config import RunConfig
    from plait.data import Dataset
    from plait.data.cache import Writer
    from plait.data.fingerprints import Hashes
    from plait.data.locks import Tell
    from plait.distributed import Team
    from plait.evaluate import Floats
    from plait.predict import Answerer
    from plait.pretrain import StageKind
    from plait.training.listeners import Listener
    from plait.training.teachers import Members, Progress
    from plait.types import TaskSpec

MEMBERS = "members"


def train(
    recipe: RunConfig | EnsembleConfig | Path | str,
    out: Path | str,
    *,
    data: str | None = None,
    resume: bool = False,
    command: str = "plait train RECIPE --out RUN --resume",
    listeners: Sequence[Listener] = (),
    team: Team = ALONE,
) -> Outcome:
    """Train a recipe, by name, path or as it was read, into a folder, or go on with what is there.

    `data` stands in for the recipe's data root; `command` is how the user would resume. A recipe
    that lists members makes an ensemble. A `team` of processes trains a run together, each making
    the same call.
    """
    if isinstance(recipe, str | Path):
        recipe = read_ensemble(recipe) if lists_members(recipe) else read_recipe(recipe)
    if isinstance(recipe, EnsembleConfig):
        if team.size > 1:
            raise UsageError(
                f"{recipe.name} lists members, each of which is a run: start one of them by itself"
            )

        def note(text: str) -> None:
            for listener in listeners:
                listener.note(text)

        return train_ensemble(
            recipe,
            out,
            data=data,
            resume=resume,
            command=command,
            listen=lambda _: listeners,
            note=note,
        )
    return run.train(
        recipe,
        out,
        data=data,
        resume=resume,
        command=command,
        listeners=listeners,
        open_teacher=open_teacher,
        team=team,
    )


# --- teachers ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Teacher:
    """A run or an ensemble that another learns from."""

    folder: Path
    members: Members
    scaled: Sequence[str] | None
    """Hashes of what scales the answers of each member, if calibrated."""

    def answer(
        self,
        config: RunConfig,
        tasks: Sequence[str],
        data: str | None,
        progress: Progress,
        *,
        unseen: bool,
    ) -> dict[str, Floats]:
        """Answer the training rows of a recipe's tasks, drawn and augmented as its own are.

        Behind those with labels come those without. With `unseen`, those members answer a row
        that were not trained on it.
        """
        # What the fastest form rounds off (some 1e-4 of a probability) no student could tell.
        how: dict[str, Any] = {"device": config.device, "precision": "auto"}
        if self.scaled is None:
            model = load(self.folder, calibrated=False, **how)
        else:
            model = load_to_calibrate(self.folder, **how) if unseen else load(self.folder, **how)
            self._check_scalings(model)
        with_labels = model.read(config, "train", data=data, tasks=tasks)
        without = model.read(config, "unlabelled", data=data, tasks=tasks)
        answers = {}
        for task in tasks:
            parts = [some[task] for some in (with_labels, without) if task in some]
            total = sum(map(len, parts))
            found, done = [], 0
            trained_on = _read_trained(model, task, data) if unseen else None
            for part in parts:
                told = _shifted(progress, done, total)
                if trained_on is None:
                    found.append(_answer_once(model, task, part, told))
                else:
                    found.append(_answer_unseen(model, task, part, trained_on, told))
                done += len(part)
            answers[task] = np.concatenate(found)
        return answers

    def _check_scalings(self, model: Answerer) -> None:
        """Refuse a model that was calibrated anew since this teacher was found."""
        members, own = [model.scalings], {}
        if isinstance(model, Ensemble):
            members, own = [member.scalings for member in model.members], model.scalings
        if _hash_scalings(members, own) != self.scaled:
            raise RunError(
                f"{self.folder} was calibrated anew while its student was trained; train the "
                "student under another --out"
            )


def _shifted(progress: Progress, before: int, total: int) -> Progress:
    """Tell of rows as of those that come after others."""
    return lambda task, done, _: progress(task, before + done, total)


def _answer_once(model: Answerer, task: str, rows: Dataset, progress: Progress) -> Floats:
    """Return a teacher's answers, kept in the cache: a trial or another student asks again."""
    views = rows.views if isinstance(rows, Views) else (rows,)
    facts = [model.fingerprint(), task, *(view.digest_tokens() for view in views)]
    name = hashlib.blake2b(" ".join(facts).encode(), digest_size=20).hexdigest()

    def ask(writer: Writer, tell: Tell) -> dict[str, Any]:
        watched = model.watched(lambda _, done, total: tell(done, done, total))
        answers = watched.answer(task, rows)
        writer.append("answers", answers.ravel())
        return {"shape": answers.shape}

    arrays, meta = load_or_build(
        cache_root() / "answers" / name, ask, lambda _, done, total: progress(task, done, total)
    )
    return arrays["answers"].reshape(meta["shape"])


def _read_trained(model: Answerer, task: str, data: str | None) -> list[Hashes]:
    """Return the fingerprints of the rows that each member was trained on, rising."""
    assert isinstance(model, Ensemble)
    trained = [
        np.unique(member.load_split("train", data=data, tasks=[task])[task].fingerprints)
        for member in model.members
    ]
    if all(np.array_equal(trained[0], other) for other in trained[1:]):
        raise RecipeError(
            f"all members of {model.folder} were trained on the same rows of {task!r}, so none has "
            "unseen ones; train them with ensemble.folds"
        )
    return trained


def _answer_unseen(
    model: Answerer, task: str, rows: Dataset, trained_on: Sequence[Hashes], progress: Progress
) -> Floats:
    """Return what those say of a row in the mean to whom it is new; all, where it is to none."""
    assert isinstance(model, Ensemble)
    assert isinstance(rows, Views)
    count = len(model.members)
    each = [
        _answer_once(member, task, view, count_in_part(progress, i, count))
        for i, (member, view) in enumerate(zip(model.members, rows.views, strict=True))
    ]
    is_new = np.stack([~is_among(rows.fingerprints, known) for known in trained_on])
    is_new |= ~is_new.any(axis=0)
    answers = np.stack(each)  # [members, rows], and of classes and labels [..., theirs]
    shares = (is_new / is_new.sum(axis=0)).reshape(*is_new.shape, *[1] * (answers.ndim - 2))
    mean: Floats = (shares * answers).sum(axis=0)
    return mean


def open_teacher(folder: Path, tasks: Mapping[str, TaskSpec], kind: StageKind) -> _Teacher:
    """Find a run or an ensemble that has these tasks, without loading its models.

    Unless asked for, a calibration is no part of who teaches: it may come and go.
    """
    runs, known = read_outlines(folder)
    wanted = {name: outline(spec) for name, spec in tasks.items()}
    for name, meaning in wanted.items():
        if name not in known:
            raise RunError(f"{folder} has no task {name!r} to teach")
        for key, value in meaning.items():
            if key != "threshold" and known[name].get(key) != value:
                raise RunError(
                    f"task {name!r} has {key} {known[name].get(key)!r} in {folder}, but {value!r} "
                    "here; a teacher's tasks mean the same"
                )
    how = {"how": read_how(folder)} if is_ensemble(folder) else {}
    members = [
        {"run": str(run.resolve()), "sha256": hash_file(RunFolder(run).weights)} | how
        for run in runs
    ]
    if not kind.calibrated:
        return _Teacher(folder, members, None)
    scaled = _read_scaled(folder, unseen=kind.unseen)
    members = [member | {"calibration": told} for member, told in zip(members, scaled, strict=True)]
    return _Teacher(folder, members, scaled)


def _read_scaled(folder: Path, *, unseen: bool) -> list[str]:
    """Return hashes of what scales the answers of each member; refuse what is not calibrated.

    Where members answer for themselves, what all together are scaled by has no part in it.
    """
    members, own = read_calibrations(folder, together=not unseen)
    if not own and not all(members):
        command = f"plait calibrate {folder}{' --left-out' if len(members) > 1 else ''}"
        which = "not all members of it are" if any(members) else "it is not"
        raise RunError(
            f"{folder} cannot teach as calibrated, since {which}; `{command}` does it, or leave "
            "`calibrated` out"
        )
    return _hash_scalings(members, own)


def _hash_scalings(
    members: Sequence[Mapping[str, Scaling]], own: Mapping[str, Scaling]
) -> list[str]:
    """Return a hash of what scales each member's answers, and those of all together."""
    told = [[plain_scalings(member), plain_scalings(own)] for member in members]
    return [hashlib.sha256(json.dumps(t, sort_keys=True).encode()).hexdigest() for t in told]


# --- ensembles ---------------------------------------------------------------------------


def train_ensemble(
    config: EnsembleConfig,
    out: Path | str,
    *,
    data: str | None = None,
    resume: bool = False,
    command: str = "plait train RECIPE --out RUN --resume",
    listen: Callable[[str], Sequence[Listener]] = lambda _: (),
    progress: Progress | None = None,
    note: Callable[[str], None] = lambda _: None,
    train_all: Callable[[Mapping[str, Path]], None] | None = None,
) -> Outcome:
    """Train every member into OUT/members, make OUT their ensemble and score it on dev.

    Members that are finished are passed over when it is resumed. `listen` is called with a
    member's name before it is trained; `progress` hears how far answering is, `note` what could
    not be calibrated. `train_all` may train the members into their folders beforehand, many at
    once.
    """
    folder = Path(out)
    _check_members(config)
    _check_place(folder, resume=resume, command=command)
    places = {name: folder / MEMBERS / name for name in config.members}
    if train_all is not None:
        train_all(places)
    results = {
        name: train(
            config.members[name],
            place,
            data=data,
            resume=(resume or train_all is not None) and place.exists(),
            command=command,
            listeners=listen(name),
        ).result
        for name, place in places.items()
    }
    write_ensemble(list(places.values()), folder, config.how)
    result: dict[str, Any] = {
        "recipe": config.name,
        "how": config.how,
        "members": {name: _brief(values) for name, values in results.items()},
        "seconds": round(sum(values["seconds"] for values in results.values()), 1),
    }
    first = next(iter(config.members.values()))
    if config.calibrate:
        calibrate(
            folder,
            data=data,
            device=first.device,
            left_out=True,
            offsets=config.calibrate == "offsets",
            lenient=True,  # what was trained is as good as without
            answering=progress,
            note=note,
        )
        scaled = _read_members_scalings(folder, note)
        result["calibrated"] = {name: sorted(s) for name, s in zip(places, scaled, strict=True)}
    if any(task.dev for task in first.tasks.values()):
        model = load(folder, device=first.device)
        watched = model if progress is None else model.watched(progress)
        result["dev"] = watched.evaluate("dev", data=data).to_json()
        result["baseline"] = next(iter(results.values()))["baseline"]
    with card_renewed(folder):
        write_text(folder / "scores.json", json.dumps(result, indent=1))
    return Outcome(folder, result)


def _read_members_scalings(folder: Path, note: Callable[[str], None]) -> list[dict[str, Scaling]]:
    """Return what members are scaled by; what all together were scaled by before may not fit."""
    try:
        return read_calibrations(folder)[0]
    except RunError:
        if not undo(folder):
            raise
    note(f"{folder} had a calibration for all together, which its members outgrew: taken away")
    return read_calibrations(folder)[0]


def _brief(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return of a member's scores what a table shows."""
    dev = result.get("dev", {})
    return {key: dev[key] for key in ("primary", "summary") if key in dev}


def _check_members(config: EnsembleConfig) -> None:
    """Refuse members that could not answer as one, before the first one is trained."""
    shared: dict[str, Any] = {}
    for name, member in config.members.items():
        check_parts(member)
        build_tasks(member)
        tasks = {task: outline(spec) for task, spec in member.tasks.items()}
        shared = shared or tasks
        try:
            compare_tasks(name, tasks, next(iter(config.members)), shared)
        except RunError as error:
            raise RecipeError(f"{config.name}: {error}") from error


def _check_place(folder: Path, *, resume: bool, command: str) -> None:
    begun = (folder / MEMBERS).is_dir()
    if not resume and is_taken(folder):
        go_on = f"go on there with `{command}`, or " if begun else ""
        raise RunError(
            f"{folder} exists already and is not overwritten; {go_on}choose another --out"
        )
    if resume and not begun:
        raise RunError(
            f"{folder} has no {MEMBERS}/ to resume; leave out --resume and choose a new --out"
        )
