"""`plait report`: see what runs learned, on one page."""

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
    pictures: Annotated[
        Path | None,
        typer.Option("--pictures", metavar="DIR", help="Write every picture as SVG and PNG, too."),
    ] = None,
    alone: Annotated[
        Path | None,
        typer.Option(
            "--alone", metavar="DIR", help="Folder that `plait train --each-alone` wrote."
        ),
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Show what runs learned on one page, side by side.

    Learning curves, who was taken for whom, how sure the answers are, where tasks disagree, what
    sharing gained, how it was made. The page is one file that needs no network. Dev is answered
    anew, or the answers are taken from the run's folder. Several runs are compared with the first.
    """
    from plait.cli.display import Display

    target = out or (runs[0] if len(runs) == 1 else Path()) / "report.html"
    if out is None:
        require_writable(target.parent, "the report")
    with Display() as display:
        display.begin("loading")
        from plait.analysis.report.page import write_report

        write_report(
            runs,
            target,
            data=data,
            pictures=pictures,
            alone=alone,
            device=device,
            note=display.note,
            begin=display.begin,
            reading=display.reading,
            answering=display.scoring,
            comparing=lambda task, *how_far: display.work(f"comparing {task}", *how_far),
        )
    typer.echo(f"The report is in {target}.")
    if pictures is not None:
        typer.echo(f"Its pictures are in {pictures}.")
