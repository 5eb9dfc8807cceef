"""`plait card`: a page about a trained model."""

from __future__ import annotations

from typing import Annotated

import typer

from plait.cli.evaluate import RunArgument


def card(
    run: RunArgument,
    write: Annotated[
        bool, typer.Option("--write", help="Put it into RUN/card.md instead of printing it.")
    ] = False,
) -> None:
    """Print a model's card, or write it again.

    It says what the model answers, how well, what it is made of and what its limits are.
    Training leaves one in the run's folder. This makes it again, for runs that have none or whose
    folder has got something to add since: calibration.json and audit.json have sections.
    """
    from plait.card import make_card
    from plait.errors import RunError

    if not run.is_dir():
        raise RunError(f"there is no run at {run}")
    if not any((run / name).is_file() for name in ("recipe.toml", "ensemble.toml")):
        raise RunError(f"{run} is neither a run nor an ensemble: it has no recipe.toml")
    text = make_card(run)
    if not write:
        typer.echo(text, nl=False)
        return
    from plait.training.checkpoint import write_text

    write_text(run / "card.md", text)
    typer.echo(f"The card is in {run / 'card.md'}.")
