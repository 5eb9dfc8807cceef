"""`plait calibrate`: make a run's probabilities ones that can be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.evaluate import DeviceOption, RunArgument
from plait.cli.train import DataOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.calibration import Fit


FEW = 50
"""Dev rows below which a temperature is noted to hang on chance."""


def calibrate(
    run: RunArgument,
    data: DataOption = None,
    undo: Annotated[bool, typer.Option("--undo", help="Take the calibration away again.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Make how sure a run is match how often it is right.

    One temperature per task of classes is fitted on dev, and its probabilities are scaled by it
    from then on; what is answered never changes. The figures shown after are of each half of dev
    under the temperature that suits the other half; the one kept, in RUN/calibration.json, is
    fitted on all of dev, whose own figures would flatter it.
    """
    if undo:
        from plait.report.calibrate import undo as take_away

        there = take_away(run)
        typer.echo(f"{run} is {'no longer' if there else 'not'} calibrated.")
        return
    from plait.cli.display import Display

    with Display() as display:
        display.begin(f"loading {run}")
        from plait.report.calibrate import calibrate as fit_run

        fits = fit_run(
            run,
            data=data,
            device=device,
            reading=display.reading,
            answering=display.scoring,
            note=display.note,
        )
        for name, fit in fits.items():
            if fit.rows < FEW:
                display.note(
                    f"{name}: {fit.rows} dev rows are few, and another few could tell quite "
                    "another temperature"
                )
            if fit.is_worse:
                display.note(
                    f"{name}: on rows that it was not fitted on, a temperature makes the log loss "
                    "worse; better --undo, or bring more dev rows"
                )
            if fit.at_the_limit:
                display.note(
                    f"the temperature of {name} is at the end of what is tried: dev has too few "
                    "mistakes, or too few right answers, to tell one"
                )
    _show(fits)
    typer.echo(
        "\nAfter: each half of dev under the temperature of the other half."
        f"\nKept in {run}, fitted on all of dev; `plait calibrate {run} --undo` takes it away."
    )


def _show(fits: Mapping[str, Fit]) -> None:
    from plait.cli.display import figure, make_console, print_table

    rows = [["task", "rows", "temperature", "ECE", "after", "log loss", "after"]]
    for name, fit in fits.items():
        pairs = [
            figure(side[key]) for key in ("ece", "log_loss") for side in (fit.before, fit.after)
        ]
        rows.append([name, str(fit.rows), f"{fit.temperature:.3f}", *pairs])
    print_table(make_console(), rows)
