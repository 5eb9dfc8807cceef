"""`plait new`: a recipe from data files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.options import SeparatorOption
from plait.cli.texts import read_separator
from plait.errors import counted

if TYPE_CHECKING:
    from plait.analysis.draft import Draft

MOST_EXPLAINED = 8
"""Number of tasks up to which every guess is shown; with more tasks, one line per task."""

Repeated = list[str] | None


def new(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder to write recipe.toml into.")
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE...", help="CSV, TSV, JSON lines, Parquet, or hf:owner/name[:config]."
        ),
    ] = None,
    task: Annotated[
        Repeated, typer.Option("--task", metavar="NAME=FILE", help="Task of a file.")
    ] = None,
    split: Annotated[
        Repeated,
        typer.Option("--split", metavar="SPLIT=FILE", help="Split of a file: train, dev or test."),
    ] = None,
    text: Annotated[
        Repeated,
        typer.Option(
            "--text", metavar="[TASK=]COLUMN[,COLUMN]", help="Text column, or two for pairs."
        ),
    ] = None,
    label: Annotated[
        Repeated,
        typer.Option(
            "--label",
            metavar="[TASK=]COLUMN[,COLUMN]",
            help="Label column, or several with 0 and 1.",
        ),
    ] = None,
    kind: Annotated[
        Repeated,
        typer.Option("--kind", metavar="[TASK=]KIND", help="classes, binary, labels or score."),
    ] = None,
    labels: Annotated[
        Repeated,
        typer.Option("--labels", metavar="[TASK=]A,B,...", help="Names of the classes, in order."),
    ] = None,
    separator: SeparatorOption = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an existing recipe.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the guesses.")] = False,
) -> None:
    """Write a recipe for data files.

    Tasks and splits are guessed from the file names (mood-train.csv, mood.dev.tsv), the columns
    from their content. Every guess is shown with its reason. To replace a guess, give it for all
    tasks (--label topic) or for one (--label mood=topic); options are repeatable. If a task has no
    dev file, the recipe holds out 10% or 20% of its training rows. Data files are not changed.
    """
    from plait.errors import UsageError

    if not (files or task or split):
        raise UsageError("name the data files after the folder: plait new DIR FILE...")
    from plait.cli.display import Display

    with Display() as display:
        display.begin("reading the files")
        from plait.analysis.draft import Request, draft_recipe
        from plait.analysis.draft.drafts import check_free

        if not dry_run:
            check_free(folder, overwrite=overwrite)
        request = Request(
            tasks=task or (),
            splits=split or (),
            text=text or (),
            label=label or (),
            kind=kind or (),
            labels=labels or (),
            separator=read_separator(separator),
        )
        draft = draft_recipe(files or (), request)
    with draft:
        _show(draft)
        if dry_run:
            return
        written = draft.write(folder, overwrite=overwrite)
    _show_next(folder, written)


def _show(draft: Draft) -> None:
    from plait.cli.display import make_console, print_table, shorten

    console = make_console()
    # First what is missing in the table.
    for sentence in draft.left_out:
        console.print(f"note: left out: {sentence}")
    if draft.left_out:
        console.print()
    if len(draft.tasks) > MOST_EXPLAINED:
        rows = [["task", "kind", "text", "label", "train", "dev", "test"]]
        for task in draft.tasks:
            shown = [task.guesses[what].value for what in ("kind", "text", "label")]
            counts = [f"{task.num_rows.get(s, 0):,}" for s in ("train", "dev", "test")]
            counts[1] = f"{task.dev_fraction:.0%}" if task.dev_fraction else counts[1]
            rows.append([task.name, *(shorten(word, 40) for word in shown), *counts])
        print_table(console, rows, num_words=4)
    else:
        rows = [["task", "what", "guess", "reason"]]
        for task in draft.tasks:
            for what, guess in task.guesses.items():
                rows.append([task.name, what, shorten(guess.value, 60), guess.why])
        print_table(console, rows, num_words=4)
    notes = [f"{task.name}: {note}" for task in draft.tasks for note in task.notes]
    if notes:
        console.print()
    for note in notes:
        console.print(f"note: {note}")
    console.print()
    for choice in draft.choices:
        if len(draft.tasks) <= MOST_EXPLAINED or not choice.key.startswith("tasks."):
            console.print(f"chosen: {choice}", markup=False)


def _show_next(folder: Path, written: list[Path]) -> None:
    import os
    import shlex
    import tomllib

    recipe = written[0]
    count = len(written) - 1
    made = f", and {counted(count, 'file')} in {folder / 'data'}" if count else ""
    typer.echo(f"\nThe recipe is {recipe}{made}. Next:")
    words = [str(recipe)]
    root = tomllib.loads(recipe.read_text(encoding="utf-8")).get("data", {}).get("root")
    if root and os.environ.get("PLAIT_DATA"):  # it has priority over the recipe's own folder
        words += ["--data", root]
    typer.echo(f"  plait check {shlex.join(words)}")
    typer.echo(f"  plait train {shlex.join(words)}")
