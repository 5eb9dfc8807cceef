"""`plait new`: data files become a recipe that trains as it stands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.texts import read_separator
from plait.errors import counted

if TYPE_CHECKING:
    from plait.analysis.draft import Draft

MOST_EXPLAINED = 8
"""Tasks up to which every guess is shown; beyond, a line a task, and the recipe has the rest."""

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
        Repeated, typer.Option("--task", metavar="NAME=FILE", help="Which task a file is of.")
    ] = None,
    split: Annotated[
        Repeated,
        typer.Option("--split", metavar="SPLIT=FILE", help="Whether it is train, dev or test."),
    ] = None,
    text: Annotated[
        Repeated, typer.Option("--text", metavar="[TASK=]COLUMN[,COLUMN]", help="Text, or a pair.")
    ] = None,
    label: Annotated[
        Repeated,
        typer.Option(
            "--label", metavar="[TASK=]COLUMN[,COLUMN]", help="Label, or columns of 0 and 1."
        ),
    ] = None,
    id_column: Annotated[
        Repeated, typer.Option("--id", metavar="[TASK=]COLUMN", help="Column of the row's name.")
    ] = None,
    kind: Annotated[
        Repeated,
        typer.Option("--kind", metavar="[TASK=]KIND", help="classes, binary, labels or score."),
    ] = None,
    labels: Annotated[
        Repeated,
        typer.Option("--labels", metavar="[TASK=]A,B,...", help="Words for classes, in order."),
    ] = None,
    range_: Annotated[
        Repeated, typer.Option("--range", metavar="[TASK=]LOW,HIGH", help="Ends of a score.")
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(
            "--separator", metavar="C", help=r"Between columns of all files: ';' or '\t'."
        ),
    ] = None,
    encoding: Annotated[
        str | None, typer.Option("--encoding", metavar="NAME", help="Of all files, as cp1252.")
    ] = None,
    header: Annotated[
        bool | None, typer.Option("--header/--no-header", help="Whether line 1 names the columns.")
    ] = None,
    dev_fraction: Annotated[
        float | None,
        typer.Option("--dev-fraction", metavar="F", help="Of train, where there is no dev file."),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Of the draw and the run.")
    ] = 11711,
    encoder: Annotated[
        str, typer.Option("--encoder", metavar="SOURCE", help="packaged, a folder or a Hub id.")
    ] = "packaged",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a recipe that DIR has already.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the guesses alone.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before writing.")] = False,
) -> None:
    """Look at data files and write a recipe that trains on them.

    Files of one task are told by their names (mood-train.csv, mood.dev.tsv), their columns by
    what they hold. Each guess is shown with its reason and can be given instead: for all tasks
    (--label topic) or for one (--label mood=topic); options may be repeated. Where a task has no
    dev file, a part of its rows is held out, equal texts together, and written to DIR/data.
    """
    from plait.errors import UsageError

    if not (files or task or split):
        raise UsageError("name the data files after the folder: plait new DIR FILE...")
    from plait.cli.display import Display

    with Display() as display:
        display.begin("looking at the files")
        from plait.analysis.draft import Reading, Request, draft_recipe
        from plait.analysis.draft.drafts import check_free

        if not dry_run:
            check_free(folder, overwrite=overwrite)
        request = Request(
            tasks=task or (),
            splits=split or (),
            text=text or (),
            label=label or (),
            id=id_column or (),
            kind=kind or (),
            labels=labels or (),
            range=range_ or (),
            dev_fraction=dev_fraction,
            seed=seed,
            encoder=encoder,
            reading=Reading(read_separator(separator), encoding, header),
        )
        draft = draft_recipe(files or (), request)
    with draft:
        _show(draft)
        if dry_run:
            return
        if not yes and sys.stdin is not None and sys.stdin.isatty():
            typer.confirm(f"\nWrite {folder / 'recipe.toml'}?", default=True, abort=True)
        written = draft.write(folder, overwrite=overwrite)
    _tell_next(folder, written)


def _show(draft: Draft) -> None:
    from plait.cli.display import make_console, print_table, shorten

    console = make_console()
    # First what is missing below, which else would be looked for there.
    for sentence in draft.left_out:
        console.print(f"note: left out: {sentence}")
    if draft.left_out:
        console.print()
    if len(draft.tasks) > MOST_EXPLAINED:
        rows = [["task", "kind", "text", "label", "train", "dev", "test"]]
        for task in draft.tasks:
            told = [task.guesses[what].value for what in ("kind", "text", "label")]
            counts = [f"{task.num_rows.get(s, 0):,}" for s in ("train", "dev", "test")]
            counts[1] = f"{task.dev_fraction:.0%}" if task.dev_fraction else counts[1]
            rows.append([task.name, *(shorten(word, 40) for word in told), *counts])
        print_table(console, rows, num_words=4)
    else:
        rows = [["task", "what", "guess", "why"]]
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


def _tell_next(folder: Path, written: list[Path]) -> None:
    import os
    import shlex
    import tomllib

    recipe = written[0]
    count = len(written) - 1
    made = f", and {counted(count, 'file')} in {folder / 'data'}" if count else ""
    typer.echo(f"\nThe recipe is {recipe}{made}. Try next:")
    words = [str(recipe)]
    root = tomllib.loads(recipe.read_text(encoding="utf-8")).get("data", {}).get("root")
    if root and os.environ.get("PLAIT_DATA"):  # which comes before the recipe's own folder
        words += ["--data", root]
    typer.echo(f"  plait check {shlex.join(words)}")
    typer.echo(f"  plait train {shlex.join(words)}")
