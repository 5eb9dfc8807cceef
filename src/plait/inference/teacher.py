"""Use a run or an ensemble as a teacher that predicts another run's training rows.

Predictions are cached for other students. Students that are trained at the same time divide the
predictions among them.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.data import cache_root
from plait.data.cache import is_underway, load_or_build
from plait.data.fingerprints import is_among
from plait.data.storage import hash_file
from plait.errors import RecipeError, RunError
from plait.inference.calibration import plain_scalings
from plait.inference.ensemble import (
    Ensemble,
    Views,
    is_ensemble,
    load,
    load_to_calibrate,
    outline,
    read_calibrations,
    read_how,
    read_outlines,
)
from plait.inference.folders import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from plait.config import RunConfig
    from plait.data import Dataset
    from plait.data.cache import Writer
    from plait.data.fingerprints import Hashes
    from plait.data.locks import Tell
    from plait.inference.calibration import Scaling
    from plait.inference.predictor import Answerer
    from plait.tasks import TaskSpec
    from plait.tasks.kind import Floats
    from plait.training.stages import StageKind
    from plait.training.teachers import Members, Progress


@dataclass(frozen=True, slots=True)
class _Teacher:
    """A run or an ensemble that teaches another run."""

    folder: Path
    members: Members
    scaled: Sequence[str] | None
    """Hash of each member's calibration, if calibrated predictions are used."""

    def answer(
        self,
        config: RunConfig,
        tasks: Sequence[str],
        data: str | None,
        progress: Progress,
        *,
        unseen: bool,
    ) -> dict[str, Floats]:
        """Predict the training rows of a recipe's tasks, with its sampling and augmentation.

        Labelled rows come first, then unlabelled ones. With `unseen`, each row is predicted only by
        members that were not trained on it.
        """
        # The fastest precision changes probabilities by about 1e-4, too little to matter.
        how: dict[str, Any] = {"device": config.device, "precision": "auto"}
        if self.scaled is None:
            model = load(self.folder, calibrated=False, **how)
        else:
            model = load_to_calibrate(self.folder, **how) if unseen else load(self.folder, **how)
            self._check_scalings(model)
        with_labels = model.read(config, "train", data=data, tasks=tasks)
        without = model.read(config, "unlabelled", data=data, tasks=tasks)
        questions, parts = [], []
        for task in tasks:
            trained_on = _read_trained(model, task, data) if unseen else None
            for rows in (some[task] for some in (with_labels, without) if task in some):
                asked = _put(model, task, rows, each_member=unseen)
                questions += asked
                parts.append((task, rows, trained_on, len(asked)))
        found = iter(_ask_all(questions, progress))
        answers: dict[str, list[Floats]] = {task: [] for task in tasks}
        for task, rows, trained_on, num_voices in parts:
            each = [next(found) for _ in range(num_voices)]
            answers[task] += each if trained_on is None else [_mean_unseen(each, rows, trained_on)]
        return {task: np.concatenate(some) for task, some in answers.items()}

    def _check_scalings(self, model: Answerer) -> None:
        """Raise RunError if the model was calibrated again since this teacher was found."""
        members, own = [model.scalings], {}
        if isinstance(model, Ensemble):
            members, own = [member.scalings for member in model.members], model.scalings
        if _hash_scalings(members, own) != self.scaled:
            raise RunError(
                f"{self.folder} was calibrated again while its student was trained; train the "
                "student with another --out"
            )


@dataclass(frozen=True, slots=True)
class _Question:
    """Rows of a task that a model has to predict."""

    model: Answerer
    task: str
    rows: Dataset
    entry: Path
    """Cache file of the predictions, which trials and other students share."""
    num_voices: int
    """Number of models that predict these rows, including this one."""


def _put(model: Answerer, task: str, rows: Dataset, *, each_member: bool) -> list[_Question]:
    """Return the requests for some rows: one for a model, or one for each member."""
    voices: list[tuple[Answerer, Dataset]] = [(model, rows)]
    if each_member:
        assert isinstance(model, Ensemble)
        assert isinstance(rows, Views)
        voices = list(zip(model.members, rows.views, strict=True))
    asked = []
    for voice, own in voices:
        views = own.views if isinstance(own, Views) else (own,)
        facts = [voice.fingerprint(), task, *(view.digest_tokens() for view in views)]
        name = hashlib.blake2b(" ".join(facts).encode(), digest_size=20).hexdigest()
        asked.append(_Question(voice, task, own, cache_root() / "answers" / name, len(voices)))
    return asked


def _ask_all(questions: Sequence[_Question], progress: Progress) -> list[Floats]:
    """Return the predictions for all requests, in order.

    Requests that another process is computing are done last, so that students that are trained at
    the same time divide the work instead of waiting for each other.
    """
    total: Counter[str] = Counter()
    for question in questions:
        total[question.task] += len(question.rows)
    done: Counter[str] = Counter()
    answers: dict[int, Floats] = {}
    while waiting := [i for i in range(len(questions)) if i not in answers]:
        number = next((i for i in waiting if not is_underway(questions[i].entry)), waiting[0])
        question = questions[number]

        def tell(rows: int, task: str = question.task, voices: int = question.num_voices) -> None:
            progress(task, (done[task] + rows) // voices, total[task] // voices)

        answers[number] = _ask(question, tell)
        done[question.task] += len(question.rows)
    return [answers[i] for i in range(len(questions))]


def _ask(question: _Question, tell: Callable[[int], None]) -> Floats:
    """Return a model's predictions, from the cache if possible."""

    def ask(writer: Writer, own: Tell) -> dict[str, Any]:
        watched = question.model.watched(lambda _, done, total: own(done, done, total))
        answers = watched.answer(question.task, question.rows)
        writer.append("answers", answers.ravel())
        return {"shape": answers.shape}

    arrays, meta = load_or_build(question.entry, ask, lambda _, done, __: tell(done))
    return arrays["answers"].reshape(meta["shape"])


def _read_trained(model: Answerer, task: str, data: str | None) -> list[Hashes]:
    """Return the sorted fingerprints of the rows that each member was trained on."""
    assert isinstance(model, Ensemble)
    trained = [
        np.unique(member.load_split("train", data=data, tasks=[task])[task].fingerprints)
        for member in model.members
    ]
    if all(np.array_equal(trained[0], other) for other in trained[1:]):
        raise RecipeError(
            f"all members of {model.folder} were trained on the same rows of {task!r}, so no row "
            "is unseen; train the members with ensemble.folds"
        )
    return trained


def _mean_unseen(each: Sequence[Floats], rows: Dataset, trained_on: Sequence[Hashes]) -> Floats:
    """Return each row's mean prediction of members not trained on it; of all, if none is left."""
    is_new = np.stack([~is_among(rows.fingerprints, known) for known in trained_on])
    is_new |= ~is_new.any(axis=0)
    answers = np.stack(each)  # [members, rows], and of classes and labels [..., theirs]
    shares = (is_new / is_new.sum(axis=0)).reshape(*is_new.shape, *[1] * (answers.ndim - 2))
    mean: Floats = (shares * answers).sum(axis=0)
    return mean


def open_teacher(folder: Path, tasks: Mapping[str, TaskSpec], kind: StageKind) -> _Teacher:
    """Find a run or an ensemble that has these tasks, without loading its models.

    Its calibration is part of its identity only if calibrated predictions are requested.
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
                    "here; the tasks of teacher and student must agree"
                )
    how = {"how": read_how(folder)} if is_ensemble(folder) else {}
    members = [
        {"run": str(run.resolve()), "sha256": hash_file(RunFolder(run).weights)} | how
        for run in runs
    ]
    if not kind.calibrated:
        return _Teacher(folder, members, None)
    scaled = _read_scaled(folder, unseen=kind.unseen)
    members = [
        member | {"calibration": scales} for member, scales in zip(members, scaled, strict=True)
    ]
    return _Teacher(folder, members, scaled)


def _read_scaled(folder: Path, *, unseen: bool) -> list[str]:
    """Return the hashes of each member's calibration; raise RunError if one is missing.

    With `unseen`, members predict separately, so the ensemble's own calibration is not included.
    """
    members, own = read_calibrations(folder, together=not unseen)
    if not own and not all(members):
        command = f"plait calibrate {quote(str(folder))}{' --left-out' if len(members) > 1 else ''}"
        which = "not all of its members are" if any(members) else "it is not"
        raise RunError(
            f"the teacher {folder} must be calibrated, but {which}: run `{command}`, or remove "
            "`calibrated` from the recipe"
        )
    return _hash_scalings(members, own)


def _hash_scalings(
    members: Sequence[Mapping[str, Scaling]], own: Mapping[str, Scaling]
) -> list[str]:
    """Return a hash of each member's scalings with those of the ensemble."""
    contents = [[plain_scalings(member), plain_scalings(own)] for member in members]
    return [hashlib.sha256(json.dumps(t, sort_keys=True).encode()).hexdigest() for t in contents]
