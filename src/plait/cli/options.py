"""Options and arguments that several commands share, and checks of them."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

Precision = Literal["auto", "run", "fp32", "bf16", "int8"]
SplitName = Literal["dev", "train", "test"]

# --- recipes -----------------------------------------------------------------------------

RecipeArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="A packaged recipe (see `plait list recipes`) or a .toml file."
    ),
]
RecipesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RECIPE", help="Packaged recipes (see `plait list recipes`) or .toml files."
    ),
]
DataOption = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder with the data files. Default: PLAIT_DATA, then data.root.",
    ),
]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option(
        "-o",
        "--override",
        metavar="KEY=VALUE|FILE.toml",
        help="Change a setting, e.g. train.lr=3e-5, or lay a file over the recipe. Repeatable.",
    ),
]
JobsOption = Annotated[
    str | None,
    typer.Option(
        "--jobs",
        metavar="N|ray[:ADDRESS]",
        help="Run N jobs at once on this machine, or use a Ray cluster.",
    ),
]

# --- runs --------------------------------------------------------------------------------

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run or an ensemble.")]
RunsArgument = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Folders of runs or ensembles.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda or cuda:N.")
]
SplitOption = Annotated[SplitName, typer.Option("--split", help="The split to score.")]
TaskOption = Annotated[
    str | None, typer.Option("--task", metavar="TASK", help="The task, if there are several.")
]
TasksOption = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="TASK", help="Only this task. Repeatable. Default: all tasks."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PrecisionOption = Annotated[
    Precision,
    typer.Option(
        "--precision", help="auto: fastest; run: as trained; fp32: exact; int8: for CPUs."
    ),
]

# --- texts -------------------------------------------------------------------------------

TextsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="TEXT", help="Texts. Without texts or --input, stdin is read."),
]
SeparatorOption = Annotated[
    str | None,
    typer.Option(
        "--separator",
        metavar="CHAR",
        help=r"Column separator, e.g. ';' or '\t'. Default: detected from the header.",
    ),
]
SkipEmptyOption = Annotated[
    bool,
    typer.Option("--skip-empty", help="Keep rows without a text and leave their result empty."),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue an interrupted job.")]

# --- checks ------------------------------------------------------------------------------


def check_new_file(path: Path, option: str) -> None:
    """Refuse a path that exists or whose folder does not, before anything slow begins."""
    from plait.errors import UsageError

    if path.exists():
        raise UsageError(f"{path} exists already and is not overwritten; choose another {option}")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} for {option} {path}")


def require_writable(folder: Path, what: str) -> None:
    """Refuse a folder that this user may not write to, before anything slow begins."""
    from plait.errors import RunError

    if folder.is_dir() and not os.access(folder, os.W_OK):
        raise RunError(f"{folder} is not writable; choose another file for {what} with --out")


# --- the command that was typed ----------------------------------------------------------

_typed: list[str] = []


def remember_command(words: Sequence[str]) -> None:
    """Store the words of the command line for `resume_command`."""
    _typed[:] = words


def resume_command(*more: object, resume: bool = True) -> str:
    """Return the command that was typed, with `more` words and --resume, ready to be pasted."""
    from plait.cli.workers import launch_command

    words = [*launch_command(), *(_typed or sys.argv[1:]), *map(str, more)]
    if resume and "--resume" not in words:
        words.append("--resume")
    return shlex.join(words)
