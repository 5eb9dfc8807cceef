"""A run's answers become what its probabilities are scaled by from then on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plait.calibration import (
    FEWEST,
    FILE,
    KINDS,
    Fit,
    dump_calibration,
    fit,
    tells_offsets,
    tells_temperature,
)
from plait.ensemble import is_ensemble, read_outlines
from plait.errors import RunError, UsageError
from plait.fitting.answers import answer_dev, answer_left_out
from plait.training.cards import card_renewed
from plait.training.checkpoint import write_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.fitting.answers import TaskAnswers
    from plait.predict import Answerer, Progress


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
        answered = answer_left_out(
            place, data=data, device=device, reading=reading, answering=answering
        )
        told = _told_of(whose, note)
        fits = _keep(*answered, "left-out", told, offsets=offsets, lenient=lenient)
        found |= {f"{whose}{task}": fit for task, fit in fits.items()}
    return found


def _told_of(whose: str, note: Callable[[str], None]) -> Callable[[str], None]:
    return lambda text: note(f"{whose}{text}")


def _keep(
    model: Answerer,
    answers: dict[str, TaskAnswers],
    rows: str,
    note: Callable[[str], None],
    *,
    offsets: bool,
    lenient: bool,
) -> dict[str, Fit]:
    """Fit what suits the answers of a model, and keep it in its folder."""
    chosen, reason = _choose(model.folder, answers, rows, note)
    if reason and lenient:
        note(f"not calibrated: {reason}")
        return {}
    if reason:
        raise UsageError(reason)
    fits = {}
    for name, task in chosen.items():
        shifts = offsets and tells_offsets(task.labels, task.uncalibrated)
        if offsets and not shifts:
            note(f"{name} gets no offsets: they take {FEWEST} {rows} rows of each class at least")
        fits[name] = fit(task.labels, task.uncalibrated, offsets=shifts)
    with card_renewed(model.folder):
        write_text(model.folder / FILE, dump_calibration(model.identify(), fits, rows))
    return fits


def _choose(
    folder: Path, answers: dict[str, TaskAnswers], rows: str, note: Callable[[str], None]
) -> tuple[dict[str, TaskAnswers], str]:
    """Return the tasks that can be calibrated on these rows, or why there is none to calibrate.

    `note` hears why others cannot be.
    """
    told = {name: task for name, task in answers.items() if task.spec.kind in KINDS}
    for name, task in answers.items():
        if task.spec.kind == "labels":
            note(f"{name} is left as it is: a temperature is for one answer a row, not for several")
    if not told:
        return {}, (
            f"{folder} has no task of classes, or of yes and no, with {rows} rows; "
            "only probabilities of those are calibrated"
        )
    if small := [name for name, task in told.items() if len(task.labels) < 2]:
        return {}, f"task {small[0]!r} has too few {rows} rows to be calibrated on"
    for name, task in list(told.items()):
        if not tells_temperature(task.labels, task.uncalibrated):
            del told[name]
            right = int((task.uncalibrated.argmax(axis=1) == task.labels).sum())
            reason = f"of its {len(task.labels)} {rows} rows {right} are right"
            note(f"{name} is left as it is: {reason}, which tells no temperature")
    if not told:
        return {}, (
            f"{rows} rows tell no temperature for any task of {folder}: it takes {FEWEST} right "
            f"and {FEWEST} wrong answers at least"
        )
    return told, ""


def undo(run: str | Path, *, left_out: bool = False) -> bool:
    """Take a calibration away, with `left_out` those of all members; say whether there was one."""
    folder = Path(run)
    if not is_ensemble(folder) and not (folder / "recipe.toml").is_file():
        raise RunError(f"there is no run at {folder}")
    places = read_outlines(folder)[0] if left_out else [folder]
    there = [place for place in places if (place / FILE).is_file()]
    for place in there:
        with card_renewed(place):
            (place / FILE).unlink(missing_ok=True)
    return bool(there)
