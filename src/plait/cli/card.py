"""`plait card`: the model card."""

from __future__ import annotations

from typing import Annotated

import typer

from plait.cli.evaluate import RunArgument


def card(
    run: RunArgument,
    write: Annotated[
        bool, typer.Option("--write", help="Write RUN/card.md instead of printing the card.")
    ] = False,
) -> None:
    """Print or regenerate the model card.

    It describes the tasks, scores, data and limits of a model. Training writes it to RUN/card.md,
    and plait calibrate and plait audit add their results. --write replaces the text between its
    two markers and keeps everything else; a card without markers is kept as card-TIME.md.
    """
    from plait.errors import RunError
    from plait.inference.card import make_card, write_card
    from plait.inference.exported import FILE as EXPORTED
    from plait.inference.folders import RunFolder

    if not run.is_dir():
        raise RunError(f"there is no run at {run}")
    if not any((run / name).is_file() for name in ("recipe.toml", "ensemble.toml")):
        raise RunError(f"{run} is neither a run nor an ensemble: it has no recipe.toml")
    if not any((run / name).is_file() for name in ("ensemble.toml", EXPORTED)):
        RunFolder(run).require_begun()
    if not write:
        typer.echo(make_card(run), nl=False)
        return
    aside = write_card(run)
    kept = "" if aside is None else f" The previous card is in {aside}."
    typer.echo(f"The card is in {run / 'card.md'}.{kept}")
