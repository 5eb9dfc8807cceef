"""`plait ensemble`: combine runs by vote, by mean prediction or by mean weights."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from plait.cli.options import DataOption, RunsArgument

if TYPE_CHECKING:
    from collections.abc import Sequence


def ensemble(
    runs: RunsArgument,
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="New folder.")],
    method: Annotated[
        Literal["vote", "mean", "weights"],
        typer.Option("--method", help="vote, mean: of predictions; weights: mean of the weights."),
    ] = "vote",
    data: DataOption = None,
) -> None:
    """Combine runs into an ensemble, or average their weights into one run.

    vote: the class that most runs predict (ties: the higher mean probability), and the median of
    scores. mean: the mean of probabilities and scores. The runs must have the same tasks and
    labels; they stay where they are, and the new folder works like a run.

    weights: a new run whose weights are the mean, as fast as one run. The runs must also have the
    same encoder, heads and tokenizer. With --data it is scored on dev.
    """
    from plait.errors import UsageError, counted

    if method == "weights":
        _average(runs, out, data)
    else:
        if data is not None:
            raise UsageError("--data is for --method weights; score an ensemble with evaluate")
        from plait.inference.ensemble import make_ensemble

        make_ensemble(runs, out, "mode" if method == "vote" else "mean")
    if len(runs) == 1:
        typer.echo("note: one run is combined with nothing; name several runs", err=True)
    what = "average" if method == "weights" else "ensemble"
    again = shlex.join(["plait", "evaluate", str(out)])
    typer.echo(f"The {what} of {counted(len(runs), 'run')} is in {out}. Next:\n  {again}")


def _average(runs: Sequence[Path], out: Path, data: str | None) -> None:
    """Average the weights; with data, score the result on dev."""
    from plait.training.average import average_runs

    folder = average_runs(runs, out)
    if data is None:
        return
    import json

    from plait.cli.display import Display
    from plait.cli.evaluate import load_watched, show_scores
    from plait.data.storage import write_text
    from plait.inference.card import write_card

    with Display() as display:
        predictor = load_watched(out, "auto", display)
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
