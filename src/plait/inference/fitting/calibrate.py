"""A run's answers become what its probabilities are scaled by from then on."""

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
    """Answers and labels by task, which tell how far to believe a model."""

IGNORED_SETTINGS = ("about", "data.", "device", "name", "precision", "seed")
"""Settings, as they begin, in which a run and one that left rows out may well differ."""


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
    """Fit one temperature per task of classes on dev, and keep them with the model.

    With `left_out` on training rows that the run left out; of an ensemble, each member is fitted
    on those that it left out itself, and results are by member and task. With `offsets` each class
    has one, too. `note` hears which tasks are left as they are, and why; and where it is `lenient`,
    which models, whose rows tell nothing.
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
                prefixed(f"{name} is left as it is: no row of it was left out")
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
    """Fit what suits the answers of `source` to rows that it left out, and keep it with `run`.

    Both are runs or ensembles. Rows that the members of `source` left out tell of each task
    together; what they tell is kept in every member of `run`, which itself may know those rows.
    """
    folder, other = Path(run), Path(source)
    places, mine = read_outlines(folder)
    members, theirs = read_outlines(other)
    shared = [name for name, meaning in mine.items() if theirs.get(name) == meaning]
    for name in mine:
        if TASK_KINDS[mine[name]["kind"]].can_scale and name not in shared:
            why = "has another meaning in" if name in theirs else "is no task of"
            note(f"{name} is left as it is: it {why} {other}")
    if changed := _compare(RunFolder(places[0]), RunFolder(members[0])):
        more = f", and {counted(len(changed) - 1, 'setting')} more" if changed[1:] else ""
        note(
            f"{other} was trained otherwise than {folder} ({changed[0]}{more}): what suits the one "
            "may suit the other less"
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
            note(f"{name} is left as it is: no row of it was left out by {other}")
    pooled = {name: PooledAnswers.of(parts) for name, parts in found.items() if parts}
    fits, reason = _fit(other, pooled, "left-out", note, offsets=offsets)
    if reason:
        raise UsageError(reason)
    for place in places:
        own = hash_file(RunFolder(place).weights)
        _write(place, own, fits, "left-out", source=other.resolve().name)
    return fits


def _compare(mine: RunFolder, theirs: RunFolder) -> list[str]:
    """List the settings in which two runs' training differs, by more than rows and chance."""
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
    """Fit what suits the answers of a model, and keep it in its folder."""
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
    """Fit what suits the answers to these rows, or say why nothing does."""
    chosen, reason = _choose(folder, answers, rows, note)
    fits = {}
    for name, task in chosen.items():
        shifts = offsets and tells_offsets(task.labels, task.uncalibrated)
        if offsets and not shifts:
            note(f"{name} gets no offsets: they take {FEWEST} {rows} rows of each class at least")
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
    """Return the tasks that can be calibrated on these rows, or why there is none to calibrate.

    `note` hears why others cannot be.
    """
    scalable = {name: task for name, task in answers.items() if task.spec.kind.can_scale}
    for name, task in answers.items():
        if task.spec.kind.form == "independent":
            note(f"{name} is left as it is: a temperature is for one answer a row, not for several")
    if not scalable:
        return {}, (
            f"{folder} has no task of classes, or of yes and no, with {rows} rows; "
            "only probabilities of those are calibrated"
        )
    for name, task in list(scalable.items()):
        if not tells_temperature(task.labels, task.uncalibrated):
            del scalable[name]
            right = int((task.uncalibrated.argmax(axis=1) == task.labels).sum())
            reason = f"of its {len(task.labels)} {rows} rows {right} are right"
            if len(task.labels) < 2:
                reason = f"it has {counted(len(task.labels), f'{rows} row')}"
            note(f"{name} is left as it is: {reason}, which tells no temperature")
    if not scalable:
        return {}, (
            f"{rows} rows tell no temperature for any task of {folder}: it takes {FEWEST} right "
            f"and {FEWEST} wrong answers at least"
        )
    return scalable, ""


def undo(run: str | Path, *, left_out: bool = False) -> bool:
    """Take a calibration away, with `left_out` those of all members; say whether there was one."""
    folder = Path(run)
    if not is_ensemble(folder) and not (folder / "recipe.toml").is_file():
        raise RunError(f"there is no run at {folder}")
    places = read_outlines(folder)[0] if left_out else [folder]
    there = [place for place in places if (place / FILE).is_file()]
    for place in there:
        (place / FILE).unlink(missing_ok=True)
        update_card(place)
    return bool(there)
