"""Fit and save the calibration of a run or an ensemble."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plait.config import differences
from plait.data.storage import hash_file, write_text
from plait.errors import RunError, UsageError, counted
from plait.inference.calibration import (
    FEWEST,
    FILE,
    Fit,
    dump_calibration,
    fit,
    tells_offsets,
    tells_temperature,
)
from plait.inference.card import update_card
from plait.inference.ensemble import is_ensemble, read_outlines
from plait.inference.fitting.answers import PooledAnswers, answer_dev, answer_left_out
from plait.inference.folders import RunFolder
from plait.tasks import TASK_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plait.inference.fitting.answers import TaskAnswers
    from plait.inference.predictor import Answerer, Progress

    Told = Mapping[str, TaskAnswers | PooledAnswers]
    """Predictions and labels by task."""

IGNORED_SETTINGS = ("about", "data.", "device", "name", "precision", "seed")
"""Prefixes of settings that may differ between a run and the run that left rows out."""


def calibrate(
    run: str | Path,
    *,
    data: str | None = None,
    device: str = "auto",
    left_out: bool = False,
    offsets: bool = False,
    lenient: bool = False,
    reading: Progress | None = None,
    answering: Progress | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> dict[str, Fit]:
    """Fit one temperature per classification task on dev, and save them with the model.

    With `left_out`, fit on the training rows that the run left out; each member of an ensemble is
    fitted on its own left-out rows, and the results are by member and task. With `offsets`, also
    fit an offset per class. `note` is called with the tasks that are skipped and why. With
    `lenient`, a model that cannot be calibrated is also skipped; otherwise it raises an error.
    """
    folder = Path(run)
    if not left_out:
        answered = answer_dev(
            folder, data=data, device=device, calibrated=False, reading=reading, answering=answering
        )
        return _keep(*answered, "dev", note, offsets=offsets, lenient=lenient)
    members, _ = read_outlines(folder)
    found: dict[str, Fit] = {}
    for place in members:
        whose = f"{place.name}, " if is_ensemble(folder) else ""
        model, answers = answer_left_out(
            place, data=data, device=device, reading=reading, answering=answering
        )
        prefixed = _prefix_notes(whose, note)
        for name, task in model.config.tasks.items():
            if task.kind.can_scale and name not in answers:
                prefixed(f"{name} skipped: the run left out none of its rows")
        fits = _keep(model, answers, "left-out", prefixed, offsets=offsets, lenient=lenient)
        found |= {f"{whose}{task}": fit for task, fit in fits.items()}
    return found


def _prefix_notes(whose: str, note: Callable[[str], None]) -> Callable[[str], None]:
    return lambda text: note(f"{whose}{text}")


def borrow(
    run: str | Path,
    source: str | Path,
    *,
    data: str | None = None,
    device: str = "auto",
    offsets: bool = False,
    reading: Progress | None = None,
    answering: Progress | None = None,
    note: Callable[[str], None] = lambda _: None,
) -> dict[str, Fit]:
    """Fit on the rows that `source` left out, and save the calibration with `run`.

    Both are runs or ensembles. The left-out rows of all members of `source` are pooled; the result
    is saved in every member of `run`, which may have been trained on those rows.
    """
    folder, other = Path(run), Path(source)
    places, mine = read_outlines(folder)
    members, theirs = read_outlines(other)
    shared = [name for name, meaning in mine.items() if theirs.get(name) == meaning]
    for name in mine:
        if TASK_KINDS[mine[name]["kind"]].can_scale and name not in shared:
            why = "has other labels in" if name in theirs else "is not a task of"
            note(f"{name} skipped: it {why} {other}")
    if changed := _compare(RunFolder(places[0]), RunFolder(members[0])):
        more = f", and {counted(len(changed) - 1, 'setting')} more" if changed[1:] else ""
        note(
            f"{other} and {folder} were trained with different settings ({changed[0]}{more}): the "
            "calibration may fit less well"
        )
    found: dict[str, list[TaskAnswers]] = {name: [] for name in shared}
    for place in members:
        _, answers = answer_left_out(
            place, data=data, device=device, reading=reading, answering=answering
        )
        for name in found.keys() & answers.keys():
            found[name].append(answers[name])
    for name, parts in found.items():
        if TASK_KINDS[mine[name]["kind"]].can_scale and not parts:
            note(f"{name} skipped: {other} left out none of its rows")
    pooled = {name: PooledAnswers.of(parts) for name, parts in found.items() if parts}
    fits, reason = _fit(other, pooled, "left-out", note, offsets=offsets)
    if reason:
        raise UsageError(reason)
    for place in places:
        own = hash_file(RunFolder(place).weights)
        _write(place, own, fits, "left-out", source=other.resolve().name)
    return fits


def _compare(mine: RunFolder, theirs: RunFolder) -> list[str]:
    """List the settings that differ between two runs, without IGNORED_SETTINGS."""
    lines = differences(theirs.read_config(), mine.read_config())
    return [line for line in lines if not line.startswith(IGNORED_SETTINGS)]


def _keep(
    model: Answerer,
    answers: Told,
    rows: str,
    note: Callable[[str], None],
    *,
    offsets: bool,
    lenient: bool,
) -> dict[str, Fit]:
    """Fit a model's calibration, and save it in its folder."""
    fits, reason = _fit(model.folder, answers, rows, note, offsets=offsets)
    if reason and lenient:
        note(f"not calibrated: {reason}")
        return {}
    if reason:
        raise UsageError(reason)
    _write(model.folder, model.identify(), fits, rows)
    return fits


def _fit(
    folder: Path, answers: Told, rows: str, note: Callable[[str], None], *, offsets: bool
) -> tuple[dict[str, Fit], str]:
    """Fit the calibration on these rows; return it, or the reason why it cannot be fitted."""
    chosen, reason = _choose(folder, answers, rows, note)
    fits = {}
    for name, task in chosen.items():
        shifts = offsets and tells_offsets(task.labels, task.uncalibrated)
        if offsets and not shifts:
            note(f"{name} gets no offsets: each class needs at least {FEWEST} {rows} rows")
        fits[name] = fit(task.labels, task.uncalibrated, offsets=shifts, groups=task.groups)
    return fits, reason


def _write(
    folder: Path, model: str, fits: Mapping[str, Fit], rows: str, *, source: str | None = None
) -> None:
    write_text(folder / FILE, dump_calibration(model, fits, rows, source))
    update_card(folder)


def _choose(
    folder: Path, answers: Told, rows: str, note: Callable[[str], None]
) -> tuple[dict[str, TaskAnswers | PooledAnswers], str]:
    """Return the tasks that can be calibrated on these rows, or the reason if no task can.

    `note` is called with the reason for each skipped task.
    """
    scalable = {name: task for name, task in answers.items() if task.spec.kind.can_scale}
    for name, task in answers.items():
        if task.spec.kind.form == "independent":
            note(f"{name} skipped: temperature scaling does not apply to multi-label tasks")
    if not scalable:
        return {}, (
            f"{folder} has no task of kind classes or binary with {rows} rows; other kinds cannot "
            "be calibrated"
        )
    for name, task in list(scalable.items()):
        if not tells_temperature(task.labels, task.uncalibrated):
            del scalable[name]
            right = int((task.uncalibrated.argmax(axis=1) == task.labels).sum())
            reason = f"{right} of its {len(task.labels)} {rows} rows are right"
            if len(task.labels) < 2:
                reason = f"it has {counted(len(task.labels), f'{rows} row')}"
            note(f"{name} skipped: {reason}, too few right or wrong ones to fit a temperature")
    if not scalable:
        return {}, (
            f"no task of {folder} can be calibrated: a temperature needs at least {FEWEST} right "
            f"and {FEWEST} wrong predictions on {rows} rows"
        )
    return scalable, ""


def undo(run: str | Path, *, left_out: bool = False) -> bool:
    """Remove a calibration, with `left_out` those of all members; return whether there was one."""
    folder = Path(run)
    if not is_ensemble(folder) and not (folder / "recipe.toml").is_file():
        raise RunError(f"there is no run at {folder}")
    places = read_outlines(folder)[0] if left_out else [folder]
    there = [place for place in places if (place / FILE).is_file()]
    for place in there:
        (place / FILE).unlink(missing_ok=True)
        update_card(place)
    return bool(there)
