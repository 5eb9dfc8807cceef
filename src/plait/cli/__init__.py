"""The command line: one file per command, nothing heavy imported before it is needed."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from plait import __version__
from plait.cli.audit import audit
from plait.cli.average import average
from plait.cli.calibrate import calibrate
from plait.cli.card import card
from plait.cli.check import check
from plait.cli.compare import compare
from plait.cli.demo import demo
from plait.cli.doctor import doctor
from plait.cli.embed import embed
from plait.cli.ensemble import ensemble
from plait.cli.evaluate import evaluate
from plait.cli.explain import explain
from plait.cli.export import export
from plait.cli.list import list_parts
from plait.cli.mistakes import mistakes
from plait.cli.new import new
from plait.cli.pairs import pairs
from plait.cli.plan import plan
from plait.cli.predict import predict
from plait.cli.report import report
from plait.cli.search import search
from plait.cli.serve import serve
from plait.cli.submit import submit
from plait.cli.train import train
from plait.cli.train_all import train_all
from plait.cli.vary import vary
from plait.cli.workers import leave_to_first, refuse_torchrun
from plait.errors import FREE_ROOM, foresee, show_controls
from plait.inference.interrupts import presses_counted

if TYPE_CHECKING:
    from collections.abc import Sequence

app = typer.Typer(
    name="plait",
    help="One text encoder, many sentence tasks, trained together.",
    epilog="Example: plait demo",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help comes up in half the time and suits any width
)

app.command(epilog="Example: plait demo")(demo)
app.command(epilog="Example: plait new mine mood-train.csv mood-dev.csv")(new)
app.command(epilog="Example: plait check mine/recipe.toml")(check)
app.command(epilog="Example: plait pairs course --task quora --out pairs.csv")(pairs)
app.command(epilog="Example: plait vary course --task sst --count 50000 --out varied.csv")(vary)
app.command(epilog="Example: plait train course --data ~/course -o train.lr=3e-5")(train)
app.command("train-all", epilog="Example: plait train-all a.toml b.toml --out runs/ab --jobs 2")(
    train_all
)
app.command(epilog="Example: plait compare plain.toml surgery.toml --out compared")(compare)
app.command(epilog="Example: plait evaluate runs/demo --json")(evaluate)
app.command(epilog="Example: plait mistakes runs/demo --task sentiment --csv wrong.csv")(mistakes)
app.command(epilog="Example: plait audit runs/demo --task sentiment")(audit)
app.command(epilog='Example: plait predict runs/demo --task sentiment "What a fine day."')(predict)
app.command(epilog='Example: plait explain runs/demo --task sentiment "What a fine day."')(explain)
app.command(epilog="Example: plait embed runs/demo --input texts.csv --output vectors.npy")(embed)
app.command(epilog="Example: plait submit runs/course --data ~/course --out predictions")(submit)
app.command(epilog="Example: plait export runs/demo --format onnx --precision int8")(export)
app.command(epilog="Example: plait serve runs/demo --port 8080")(serve)
app.command(epilog="Example: plait card runs/demo")(card)
app.command(epilog="Example: plait ensemble runs/a runs/b runs/c --out runs/abc")(ensemble)
app.command(epilog="Example: plait average runs/a runs/b --out runs/soup")(average)
app.command(epilog="Example: plait report runs/demo runs/slower --out demos.html")(report)
app.command(epilog="Example: plait calibrate runs/demo")(calibrate)
app.command(epilog="Example: plait plan course")(plan)
app.command(epilog="Example: plait search mine.toml --space space.toml --trials 30 --holdout 0.1")(
    search
)
app.command("list", epilog="Example: plait list recipes")(list_parts)
app.command(epilog="Example: plait doctor")(doctor)

# The base of all complaints about the words typed. Newer typers have it inside, older ones
# take it from click; BadParameter is exported by both.
_TypedWrong: Any = typer.BadParameter.__mro__[2]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"plait {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
    elif context.invoked_subcommand != "train":
        refuse_torchrun(context.invoked_subcommand)


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; what goes wrong becomes one sentence and an exit code.

    2 for what the user can mend, 1 for what the machine ran out of, 130 for Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without UTF-8 must not end the work
            stream.reconfigure(errors="backslashreplace")
    try:
        with presses_counted():
            code = _run(args)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def _run(args: Sequence[str] | None) -> int:
    args = _at_home(sys.argv[1:] if args is None else args)
    try:
        code = app(args, prog_name="plait", standalone_mode=False)
    except _TypedWrong as error:
        leave_to_first()
        text = error.format_message().rstrip(".").replace("Value error, ", "")
        text = text.replace("Input should", "should")
        command = error.ctx.command_path if error.ctx else "plait"
        return _complain(f"{text[:1].lower()}{text[1:]} (see `{command} --help`)", 2)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        raise
    except Exception as error:
        told = foresee(error)
        if told is None:
            raise
        text = str(told)
        if text.endswith(FREE_ROOM):
            text += _say_again(args)
        return _complain(text, told.exit_code, getattr(told, "__notes__", ()))
    # Typer makes an exit code of Ctrl-C itself, without a word.
    return _complain("stopped", 130) if code == 130 else code or 0


def _at_home(words: Sequence[str]) -> list[str]:
    """Read --out=~/runs as meant: bash leaves the sign there, and a folder called ~ is a trap."""
    end = words.index("--") if "--" in words else len(words)
    return [
        f"{found[1]}{Path(found[2]).expanduser()}"
        if i < end and (found := re.fullmatch(r"(--[\w-]+=)(~(?:/.*)?)", word, re.DOTALL))
        else word
        for i, word in enumerate(words)
    ]


def _say_again(words: Sequence[str]) -> str:
    """Say how to go on with a command: with --resume where it has that and was not given it."""
    commands = getattr(typer.main.get_command(app), "commands", {})
    name = next((word for word in words if word in commands), None)
    options = [option for param in commands[name].params for option in param.opts] if name else []
    resume = ", with --resume" * ("--resume" in options and "--resume" not in words)
    return f", then give the same command again{resume}"


def _complain(text: str, code: int, notes: Sequence[str] = ()) -> int:
    for note in notes:  # what is behind it: a traceback of another machine
        typer.echo(show_controls(note), err=True)
    typer.echo(f"plait: {show_controls(' '.join(text.splitlines()))}", err=True)
    return code
