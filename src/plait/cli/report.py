"""`plait report`: an HTML report about runs, or the model card of one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plait.cli.options import DataOption, RunsArgument, require_writable


def report(
    runs: RunsArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="FILE.html, or FILE.md for the model card; - prints the card.",
        ),
    ] = None,
    data: DataOption = None,
) -> None:
    """Write an HTML report about one run or several, or a model card.

    The report is one file that works offline: scores and baselines, learning curves, confusion
    matrices, calibration, gradient conflicts, joint and single-task training, settings. Several
    runs are compared with the first. A folder that `plait train --each-alone` wrote may be given
    as the last run.

    The model card (FILE.md) describes the tasks, scores, data and limits of one run.
    """
    from plait.errors import UsageError

    if out is not None and (str(out) == "-" or out.suffix == ".md"):
        if len(runs) > 1:
            raise UsageError("a model card describes one run: name one RUN, or --out FILE.html")
        _write_card(runs[0], out)
        return
    if out is not None and out.suffix not in (".html", ".htm"):
        raise UsageError(f"--out {out} should end in .html (report) or .md (model card)")
    from plait.cli.display import Display

    alone = runs.pop() if len(runs) > 1 and is_alone(runs[-1]) else None
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
            note=display.note,
            reading=display.reading,
            answering=display.scoring,
            progress=display.work,
        )
    typer.echo(f"The report is in {target}.")


def is_alone(folder: Path) -> bool:
    """Return whether a folder holds single-task runs instead of being a run."""
    own = ("recipe.toml", "ensemble.toml")
    return not any((folder / name).is_file() for name in own) and any(folder.glob("*/recipe.toml"))


def _write_card(run: Path, out: Path) -> None:
    """Write or print the model card of a run."""
    from plait.data.storage import write_text
    from plait.errors import RunError
    from plait.inference.card import make_card, write_card
    from plait.inference.exported import FILE as EXPORTED
    from plait.inference.folders import RunFolder

    if not run.is_dir():
        raise RunError(f"there is no run at {run}")
    if not any((run / name).is_file() for name in ("recipe.toml", "ensemble.toml")):
        raise RunError(f"{run} is not a run or an ensemble: it has no recipe.toml")
    if not any((run / name).is_file() for name in ("ensemble.toml", EXPORTED)):
        RunFolder(run).require_begun()
    if str(out) == "-":
        typer.echo(make_card(run), nl=False)
        return
    aside = None
    if out.resolve() == RunFolder(run).card.resolve():
        aside = write_card(run)
    else:
        write_text(out, make_card(run))
    kept = "" if aside is None else f" The previous card is in {aside}."
    typer.echo(f"The model card is in {out}.{kept}")
