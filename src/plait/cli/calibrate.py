"""`plait calibrate`: calibrate a run's probabilities on held-out data."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.options import DataOption, RunArgument
from plait.errors import RunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.inference.calibration import Fit


FEW = 50
"""Number of rows below which a note says that the temperature is unreliable."""


def calibrate(
    run: RunArgument,
    data: DataOption = None,
    left_out: Annotated[
        bool,
        typer.Option(
            "--left-out",
            help="Fit on the training rows that the run left out, not on dev.",
        ),
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="OTHER",
            help="Fit on the training rows that another run of the recipe left out.",
        ),
    ] = None,
    offsets: Annotated[
        bool,
        typer.Option(
            "--offsets",
            help="Also fit an offset per class; predictions may change.",
        ),
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Remove the calibration.")] = False,
) -> None:
    """Calibrate a run's probabilities on held-out data.

    One temperature per classification task is fitted on dev and kept in RUN/calibration.json; all
    later predictions use it. Predicted classes do not change, except with --offsets. The table
    shows two-fold cross-validated figures; the temperature that is kept is fitted on all rows.

    With data.leave_out, a run leaves out training rows; --left-out fits on those, separately for
    each member of an ensemble. With --offsets this restores the original class frequencies of the
    task's first training file without using dev.
    """
    if source is not None and (left_out or undo):
        also = "--left-out" if left_out else "--undo"
        raise UsageError(f"use --from or {also}, not both")
    if undo:
        from plait.inference.fitting.calibrate import undo as remove

        there = remove(run, left_out=left_out)
        typer.echo(f"{run} is {'no longer' if there else 'not'} calibrated.")
        _note_outdated(run)
        return
    from plait.cli.display import Display

    each = left_out or source is not None
    rows = "left-out" if each else "dev"
    with Display() as display:
        display.begin(f"loading {run}")
        from plait.inference.ensemble import is_ensemble
        from plait.inference.fitting.calibrate import borrow
        from plait.inference.fitting.calibrate import calibrate as fit_run

        how: dict[str, Any] = {
            "data": data,
            "offsets": offsets,
            "reading": display.reading,
            "answering": display.scoring,
            "note": display.note,
        }
        if source is None:
            fits = fit_run(run, left_out=left_out, **how)
        else:
            fits = borrow(run, source, **how)
        for name, fit in fits.items():
            if fit.rows < FEW:
                display.note(f"{name}: only {fit.rows} {rows} rows: the temperature is unreliable")
            if fit.is_worse:
                display.note(
                    f"{name}: calibration increases the log loss on rows it was not fitted on; "
                    f"use --undo, or more {rows} rows"
                )
            if fit.at_the_limit:
                display.note(
                    f"{name}: the temperature is at the limit of its range: the {rows} rows have "
                    "too few errors, or too few correct predictions"
                )
    _show(fits, offsets=offsets)
    in_members = each and is_ensemble(run)
    place = f"the members of {run}" if in_members else str(run)
    again = (
        f"plait calibrate {quote(str(run))}{' --left-out' if left_out or in_members else ''} --undo"
    )
    typer.echo(
        f"\nThe figures after calibration are two-fold cross-validated on the {rows} rows."
        f"\nThe calibration, fitted on all of them, is kept in {place}; `{again}` removes it."
    )
    _note_outdated(run)


def _note_outdated(run: Path) -> None:
    """Print that an ensemble's own calibration no longer fits its members."""
    from plait.inference.calibration import FILE
    from plait.inference.ensemble import is_ensemble, read_calibrations

    if not is_ensemble(run) or not (run / FILE).is_file():
        return
    try:
        read_calibrations(run)
    except RunError:
        typer.echo(
            f"The calibration of {run} itself was made for its members as they were before: "
            f"`plait calibrate {quote(str(run))}` renews it, --undo removes it."
        )


def _show(fits: Mapping[str, Fit], *, offsets: bool) -> None:
    from plait.cli.display import figure, make_console, print_table

    shown = {"accuracy": "accuracy"} if offsets else {}
    shown |= {"ece": "ECE", "log_loss": "log loss"}
    heads = [word for name in shown.values() for word in (name, "after")]
    rows = [["task", "rows", "temperature", *heads]]
    for name, fit in fits.items():
        pairs = [figure(side[key]) for key in shown for side in (fit.before, fit.after)]
        rows.append([name, str(fit.rows), f"{fit.scaling.temperature:.3f}", *pairs])
    print_table(make_console(), rows)
