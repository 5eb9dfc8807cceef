"""A run's answers to dev become temperatures that its probabilities are scaled by from then on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plait.calibration import FILE, KINDS, Fit, fit, write_calibration
from plait.ensemble import is_ensemble
from plait.errors import RunError, UsageError
from plait.report.answers import answer_dev

if TYPE_CHECKING:
    from plait.predict import Progress


def calibrate(
    run: str | Path,
    *,
    data: str | None = None,
    device: str = "auto",
    reading: Progress | None = None,
    answering: Progress | None = None,
) -> dict[str, Fit]:
    """Fit one temperature per task of classes on dev, and keep them with the model."""
    folder = Path(run)
    model, answers = answer_dev(
        folder, data=data, device=device, calibrated=False, reading=reading, answering=answering
    )
    told = {name: task for name, task in answers.items() if task.spec.kind in KINDS}
    if not told:
        raise UsageError(
            f"{folder} has no task of classes, or of yes and no, with dev files; "
            "only probabilities can be calibrated"
        )
    if small := [name for name, task in told.items() if len(task.labels) < 2]:
        raise UsageError(f"task {small[0]!r} has too few dev rows to be calibrated on")
    fits = {name: fit(task.labels, task.uncalibrated) for name, task in told.items()}
    write_calibration(folder, model.identify(), fits)
    return fits


def undo(run: str | Path) -> bool:
    """Take the temperatures away again; say whether there were any."""
    folder = Path(run)
    if not is_ensemble(folder) and not (folder / "recipe.toml").is_file():
        raise RunError(f"there is no run at {folder}")
    there = (folder / FILE).is_file()
    (folder / FILE).unlink(missing_ok=True)
    return there
