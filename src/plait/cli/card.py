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
    Training leaves one in the run's folder, and plait calibrate and plait audit add to it what
    they find; lines that people wrote into it stay. --write makes it again from the folder's
    files alone, and keeps a card that said something else beside it, as card-TIME.md.
    """
    from plait.errors import RunError
    from plait.inference.card import make_card
    from plait.inference.exported import FILE as EXPORTED
    from plait.inference.folders import RunFolder

    if not run.is_dir():
        raise RunError(f"there is no run at {run}")
    if not any((run / name).is_file() for name in ("recipe.toml", "ensemble.toml")):
        raise RunError(f"{run} is neither a run nor an ensemble: it has no recipe.toml")
    if not any((run / name).is_file() for name in ("ensemble.toml", EXPORTED)):
        RunFolder(run).require_begun()
    text = make_card(run)
    if not write:
        typer.echo(text, nl=False)
        return
    from plait.inference.cards import write_card

    aside = write_card(run, text)
    kept = "" if aside is None else f" What was there before is in {aside}."
    typer.echo(f"The card is in {run / 'card.md'}.{kept}")
