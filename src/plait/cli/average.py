"""`plait average`: the weights of several runs become one run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from plait.cli.ensemble import RunsArgument, note_single
from plait.cli.evaluate import DeviceOption
from plait.errors import counted


def average(
    runs: RunsArgument,
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="Folder of the new run.")],
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="DIR", help="Score dev files in this folder into scores.json."
        ),
    ] = None,
    device: DeviceOption = "auto",
) -> None:
    """Average the weights of runs of one shape into a run.

    The runs began with the same encoder and have the same tasks, heads and tokenizer. What
    comes out works wherever a run does, and costs no more than one. Without --data it has no
    scores.json.
    """
    from plait.training.average import average_runs

    folder = average_runs(runs, out)
    note_single(runs, "the average of one run is the run itself")
    if data is not None:
        import json

        from plait.cli.display import Display
        from plait.cli.evaluate import load_watched, show_scores
        from plait.data.storage import write_text
        from plait.inference.card import write_card

        with Display() as display:
            predictor = load_watched(out, device, display)
            scores = predictor.evaluate("dev", data=data)
        result = {
            "recipe": predictor.config.name,
            "averaged": [str(run) for run in runs],
            "dev": scores.to_json(),
        }
        write_text(folder.scores, json.dumps(result, indent=1))
        write_card(folder.path)
        show_scores(scores, "dev")
        typer.echo()
    again = shlex.join(["plait", "evaluate", str(out)])
    typer.echo(f"The average of {counted(len(runs), 'run')} is in {out}. Try next:\n  {again}")
