"""`plait report`: write an HTML report about runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plait.cli.evaluate import DeviceOption, require_writable
from plait.cli.train import DataOption


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Folders of runs, or of ensembles.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="The page; report.html in the run unless set, or here for several runs.",
        ),
    ] = None,
    data: DataOption = None,
    alone: Annotated[
        Path | None,
        typer.Option(
            "--alone", metavar="DIR", help="Folder that `plait train --each-alone` wrote."
        ),
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Write an HTML report about one run or several.

    The report is one file that works offline: scores and baselines, learning curves, confusion
    matrices, calibration, gradient conflicts, joint and single-task training, settings. Several
    runs are compared with the first.
    """
    from plait.cli.display import Display

    target = out or (runs[0] if len(runs) == 1 else Path()) / "report.html"
    if out is None:
        require_writable(target.parent, "the report")
    with Display() as display:
        display.begin("loading")
        from plait.analysis.report import write_report

        write_report(
            runs,
            target,
            data=data,
            alone=alone,
            device=device,
            note=display.note,
            reading=display.reading,
            answering=display.scoring,
            progress=display.work,
        )
    typer.echo(f"The report is in {target}.")
