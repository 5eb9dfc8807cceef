"""`plait ensemble`: several runs become one that answers for them."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from plait.errors import counted

RunsArgument = Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs.")]


def ensemble(
    runs: RunsArgument,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="A new folder for the ensemble.")
    ],
    how: Annotated[
        Literal["mode", "mean"], typer.Option("--how", help="How their answers become one.")
    ] = "mode",
) -> None:
    """See several runs as one, by vote or by mean.

    By mode, a class is the one most of them choose (of equals, the one of the higher mean
    probability) and a score is their median; by mean, probabilities and scores are averaged.
    The folder names the runs, which stay where they are; evaluate, predict and submit take
    it like a run. The runs share their tasks and labels, and may differ in all else.
    """
    from plait.inference.ensemble import make_ensemble

    folder = make_ensemble(runs, out, how)
    note_single(runs, "an ensemble of one run answers as the run itself does")
    again = shlex.join(["plait", "evaluate", str(folder)])
    typer.echo(f"The ensemble of {counted(len(runs), 'run')} is in {folder}. Try next:\n  {again}")


def note_single(runs: list[Path], what: str) -> None:
    """Say that one run alone was named, as by a pattern that more were expected of.

    It is no refusal: what comes of it is right, and a script may have more of them next time.
    """
    if len(runs) == 1:
        typer.echo(f"note: {what}; name others beside {runs[0]} to combine them", err=True)
