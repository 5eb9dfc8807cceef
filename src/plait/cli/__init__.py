"""The command line: one file per command, nothing heavy imported before it is needed."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from plait import __version__
from plait.cli.demo import demo
from plait.cli.doctor import doctor
from plait.cli.evaluate import evaluate
from plait.cli.list import list_parts
from plait.cli.plan import plan
from plait.cli.predict import predict
from plait.cli.submit import submit
from plait.cli.train import train
from plait.errors import PlaitError

app = typer.Typer(
    name="plait",
    help="One text encoder, many sentence tasks, trained together.",
    epilog="Example: plait demo",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

app.command(epilog="Example: plait demo")(demo)
app.command(epilog="Example: plait train course --data ~/course -o train.lr=3e-5")(train)
app.command(epilog="Example: plait evaluate runs/demo --json")(evaluate)
app.command(epilog='Example: plait predict runs/demo --task sentiment "What a fine day."')(predict)
app.command(epilog="Example: plait submit runs/course --data ~/course --out predictions")(submit)
app.command(epilog="Example: plait plan course")(plan)
app.command("list", epilog="Example: plait list recipes")(list_parts)
app.command(epilog="Example: plait doctor")(doctor)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"plait {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; errors of ours become one sentence and an exit code."""
    try:
        app()
    except PlaitError as error:
        typer.echo(f"plait: {error}", err=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("plait: stopped", err=True)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
