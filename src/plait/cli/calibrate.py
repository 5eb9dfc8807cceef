"""`plait calibrate`: make a run's probabilities ones that can be believed."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.evaluate import DeviceOption, RunArgument
from plait.cli.train import DataOption
from plait.errors import RunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.inference.calibration import Fit


FEW = 50
"""Rows below which a temperature is noted to hang on chance."""


def calibrate(
    run: RunArgument,
    data: DataOption = None,
    left_out: Annotated[
        bool,
        typer.Option(
            "--left-out",
            help="Fit on training rows that the run left out (data.leave_out), instead of dev; of "
            "an ensemble, each member on its own.",
        ),
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="OTHER",
            help="Fit on training rows that another run or ensemble of the same recipe left out, "
            "for a run that was trained on all.",
        ),
    ] = None,
    offsets: Annotated[
        bool,
        typer.Option(
            "--offsets",
            help="Fit an offset for each class as well; then answers may change.",
        ),
    ] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Take the calibration away again.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Make how sure a run is match how often it is right.

    One temperature per task of classes is fitted on dev, and its probabilities are scaled by it
    from then on; what is answered never changes, but with --offsets. The figures shown after are of
    each half of the rows under what suits the other half; the one kept, in RUN/calibration.json, is
    fitted on all of them, whose own figures would flatter it.

    Added data may shift how often each class is answered; --left-out --offsets brings that back to
    how often it stands in the task's first training file, without a look at dev. For a run that
    left nothing out, --from takes what others of its recipe left out:

    plait calibrate runs/all --from runs/folds --offsets
    """
    if source is not None and (left_out or undo):
        also = "--left-out" if left_out else "--undo"
        raise UsageError(f"--from and {also} do not go together; leave one of them out")
    if undo:
        from plait.inference.fitting.calibrate import undo as take_away

        there = take_away(run, left_out=left_out)
        typer.echo(f"{run} is {'no longer' if there else 'not'} calibrated.")
        _tell_outgrown(run)
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
            "device": device,
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
                display.note(
                    f"{name}: {fit.rows} {rows} rows are few, and another few could tell quite "
                    "another temperature"
                )
            if fit.is_worse:
                display.note(
                    f"{name}: on rows that it was not fitted on, a temperature makes the log loss "
                    f"worse; better --undo, or bring more {rows} rows"
                )
            if fit.at_the_limit:
                display.note(
                    f"the temperature of {name} is at the end of what is tried: {rows} rows have "
                    "too few mistakes, or too few right answers, to tell one"
                )
    _show(fits, offsets=offsets)
    in_members = each and is_ensemble(run)
    place = f"the members of {run}" if in_members else str(run)
    again = (
        f"plait calibrate {quote(str(run))}{' --left-out' if left_out or in_members else ''} --undo"
    )
    typer.echo(
        f"\nAfter: each half of the {rows} rows under what suits the other half."
        f"\nKept in {place}, fitted on all of them; `{again}` takes it away."
    )
    _tell_outgrown(run)


def _tell_outgrown(run: Path) -> None:
    """Say so where an ensemble's own calibration fits its members no longer, and is refused."""
    from plait.inference.calibration import FILE
    from plait.inference.ensemble import is_ensemble, read_calibrations

    if not is_ensemble(run) or not (run / FILE).is_file():
        return
    try:
        read_calibrations(run)
    except RunError:
        typer.echo(
            f"{run} itself was calibrated with its members as they were before: "
            f"`plait calibrate {quote(str(run))}` does it anew, or takes it away with --undo."
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
