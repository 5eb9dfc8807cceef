"""A run's answers to dev become temperatures that its probabilities are scaled by from then on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plait.calibration import FEWEST, FILE, KINDS, Fit, fit, tells_temperature, write_calibration
from plait.ensemble import is_ensemble
from plait.errors import RunError, UsageError
from plait.report.answers import answer_dev
from plait.training.cards import card_renewed

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.predict import Progress


def calibrate(
    run: str | Path,
    *,
    data: str | None = None,
    device: str = "auto",
    reading: Progress | None = None,
    answering: Progress | None = None,
    note: Callable[[str], None] | None = None,
) -> dict[str, Fit]:
    """Fit one temperature per task of classes on dev, and keep them with the model.

    `note` hears which tasks are left as they are, and why.
    """
    folder = Path(run)
    model, answers = answer_dev(
        folder, data=data, device=device, calibrated=False, reading=reading, answering=answering
    )
    told = {name: task for name, task in answers.items() if task.spec.kind in KINDS}
    for name, task in answers.items():
        if note is not None and task.spec.kind == "labels":
            note(f"{name} is left as it is: a temperature is for one answer a row, not for several")
    if not told:
        raise UsageError(
            f"{folder} has no task of classes, or of yes and no, with dev files; "
            "only probabilities of those are calibrated"
        )
    if small := [name for name, task in told.items() if len(task.labels) < 2]:
        raise UsageError(f"task {small[0]!r} has too few dev rows to be calibrated on")
    for name, task in list(told.items()):
        if not tells_temperature(task.labels, task.uncalibrated):
            del told[name]
            right = int((task.uncalibrated.argmax(axis=1) == task.labels).sum())
            reason = f"of its {len(task.labels)} dev rows {right} are right"
            if note is not None:
                note(f"{name} is left as it is: {reason}, which tells no temperature")
    if not told:
        raise UsageError(
            f"dev tells no temperature for any task of {folder}: it takes {FEWEST} right and "
            f"{FEWEST} wrong answers at least"
        )
    fits = {name: fit(task.labels, task.uncalibrated) for name, task in told.items()}
    with card_renewed(folder):
        write_calibration(folder, model.identify(), fits)
    return fits


def undo(run: str | Path) -> bool:
    """Take the temperatures away again; say whether there were any."""
    folder = Path(run)
    if not is_ensemble(folder) and not (folder / "recipe.toml").is_file():
        raise RunError(f"there is no run at {folder}")
    there = (folder / FILE).is_file()
    if there:
        with card_renewed(folder):
            (folder / FILE).unlink(missing_ok=True)
    return there
