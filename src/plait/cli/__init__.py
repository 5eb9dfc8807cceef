"""The command line: one file per command; nothing heavy is imported before it is needed."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from plait import __version__
from plait.cli.audit import audit
from plait.cli.augment import augment
from plait.cli.calibrate import calibrate
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
from plait.cli.new import new
from plait.cli.options import remember_command, resume_command
from plait.cli.plan import plan
from plait.cli.predict import predict
from plait.cli.removed import explain_removed
from plait.cli.report import report
from plait.cli.search import search
from plait.cli.serve import serve
from plait.cli.train import train
from plait.cli.workers import leave_to_first, refuse_torchrun
from plait.errors import FREE_ROOM, foresee, show_controls
from plait.inference.interrupts import presses_counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Group -> commands with their examples, in the order of `plait --help`.
GROUPS: dict[str, list[tuple[Callable[..., None], str]]] = {
    "Start": [
        (demo, "plait demo"),
        (new, "plait new mine mood-train.csv mood-dev.csv"),
        (check, "plait check mine/recipe.toml"),
        (list_parts, "plait list recipes"),
        (doctor, "plait doctor"),
    ],
    "Train": [
        (plan, "plait plan course"),
        (
            train,
            "plait train course --data ~/course -o train.lr=3e-5\n"
            "plait train a.toml b.toml --out runs/ab --jobs 2",
        ),
        (compare, "plait compare plain.toml surgery.toml --out compared"),
        (search, "plait search mine.toml -o space.toml --trials 30 --holdout 0.1"),
    ],
    "Evaluate": [
        (
            evaluate,
            "plait evaluate runs/demo\n"
            "plait evaluate runs/demo --task sentiment --errors 10 --csv errors.csv",
        ),
        (explain, 'plait explain runs/demo --task sentiment "What a fine day."'),
        (calibrate, "plait calibrate runs/demo"),
        (audit, "plait audit runs/demo --task sentiment"),
        (
            report,
            "plait report runs/demo runs/slower --out demos.html\n"
            "plait report runs/demo --out card.md",
        ),
    ],
    "Use": [
        (
            predict,
            'plait predict runs/demo --task sentiment "What a fine day."\n'
            "plait predict runs/demo --input texts.csv --out predictions.csv",
        ),
        (embed, "plait embed runs/demo --input texts.csv --out vectors.npy"),
        (serve, "plait serve runs/demo --port 8080"),
        (export, "plait export runs/demo --format onnx --precision int8"),
    ],
    "Combine": [
        (ensemble, "plait ensemble runs/a runs/b runs/c --out runs/abc"),
        (augment, "plait augment course --method pairs --task quora --out pairs.csv"),
    ],
}


class _Commands(TyperGroup):
    """Shows the commands in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - click's signature
        width = max(map(len, self.commands)) + 2
        with formatter.section("Commands"):
            for group, entries in GROUPS.items():
                with formatter.section(group):
                    for function, _ in entries:
                        command = self.commands[name_command(function)]
                        about = command.get_short_help_str(100)
                        formatter.write(
                            f"{'':{formatter.current_indent}}{command.name:{width}}{about}\n"
                        )


def name_command(function: Callable[..., None]) -> str:
    """Return the name of a command's function on the command line."""
    return "list" if function is list_parts else function.__name__


app = typer.Typer(
    name="plait",
    cls=_Commands,
    help="Train one text encoder on many sentence tasks.",
    epilog="Example: plait demo",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help is twice as fast and fits any width
)

for _entries in GROUPS.values():
    for _function, _examples in _entries:
        _lines = "\n".join(f"  {line}" for line in _examples.splitlines())
        _title = "Examples" if "\n" in _examples else "Example"
        app.command(name_command(_function), epilog=f"\b\n{_title}:\n{_lines}")(_function)

# The base class of errors in the arguments. Newer versions of typer have their own copy of
# click, older ones import it; BadParameter is exported by both.
_UsageError: Any = typer.BadParameter.__mro__[2]


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
    """Run the command line; an error becomes one sentence and an exit code.

    2: something the user can correct. 1: the machine ran out of something. 130: Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal without UTF-8 must not stop the command
            stream.reconfigure(errors="backslashreplace")
    try:
        with presses_counted():
            code = _run([*(sys.argv[1:] if args is None else args)])  # `list` is a module here
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of our output has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)


def _run(args: Sequence[str]) -> int:
    remember_command(args)
    try:
        code = app(args, prog_name="plait", standalone_mode=False)
    except _UsageError as error:
        leave_to_first()
        if removed := explain_removed(args, getattr(error, "option_name", None)):
            return _complain(removed, 2)
        text = error.format_message().rstrip(".")
        command = error.ctx.command_path if error.ctx else "plait"
        return _complain(f"{text[:1].lower()}{text[1:]} (see `{command} --help`)", 2)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        raise
    except Exception as error:
        expected = foresee(error)
        if expected is None:
            raise
        text = str(expected)
        if text.endswith(FREE_ROOM):
            text += f", then continue with: {resume_command(resume=_can_resume(args))}"
        return _complain(text, expected.exit_code, getattr(expected, "__notes__", ()))
    # Typer turns Ctrl-C into an exit code and prints nothing.
    return _complain("stopped", 130) if code == 130 else code or 0


def _can_resume(args: Sequence[str]) -> bool:
    """Return whether the command has an option --resume."""
    commands = getattr(typer.main.get_command(app), "commands", {})
    name = next((word for word in args if word in commands), None)
    return name is not None and any("--resume" in param.opts for param in commands[name].params)


def _complain(text: str, code: int, notes: Sequence[str] = ()) -> int:
    for note in notes:  # the traceback of another machine
        typer.echo(show_controls(note), err=True)
    typer.echo(f"plait: {show_controls(' '.join(text.splitlines()))}", err=True)
    return code
