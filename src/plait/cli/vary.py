"""`plait vary`: a task's training rows with other words, for a teacher or a person to label."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plait.cli.evaluate import check_new_file
from plait.cli.pairs import choose_task, tell_use, write_texts
from plait.cli.train import DataOption, OverrideOption, RecipeArgument


def vary(
    recipe: RecipeArgument,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="Whose rows; needless if there is one task."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="CSV file to write.")] = Path(
        "varied.csv"
    ),
    data: DataOption = None,
    count: Annotated[
        int | None,
        typer.Option("--count", metavar="N", min=1, help="Rows to make; one of each if not."),
    ] = None,
    share: Annotated[
        float,
        typer.Option(
            "--share", metavar="PART", min=0, max=1, help="Part of the words that gives way."
        ),
    ] = 0.4,
    neighbours: Annotated[
        int,
        typer.Option("--neighbours", metavar="N", min=1, help="Words that may take one's place."),
    ] = 15,
    override: OverrideOption = None,
) -> None:
    """Put other words into training rows, without labels.

    A word gives way to one like it, of the same training texts, as told by the recipe's encoder
    before training; the most frequent words stay, and of a pair one text changes. Rows of which
    dev or test has a text are left out. A stage that distils takes the file as the task's
    `unlabelled` rows, and its teacher answers them.
    """
    from plait.cli.display import Display
    from plait.config import read_recipe

    check_new_file(out, "--out")
    config = read_recipe(recipe, override or ())
    chosen = choose_task(config, task, list(config.tasks), "vary")
    with Display() as display:
        from plait.inference.unlabelled import vary_rows

        made = vary_rows(
            config,
            chosen,
            data=data,
            count=count,
            share=share,
            neighbours=neighbours,
            reading=display.reading,
            progress=display.work,
        )
        for path in made.missing:
            display.note(f"{path} is not there, so its texts cannot be left out")
        if count is not None and len(made.rows) < count:
            display.note(f"there is no more to be made of them than {len(made.rows):,} rows")
    write_texts(made.rows, config.tasks[chosen].text, out)
    typer.echo(
        f"{len(made.rows):,} rows made of {made.num_rows:,} are in {out}; {made.num_words:,} words "
        f"could give way; left out: {made.known:,} rows that are not new, {made.held_out:,} of "
        "which dev or test has a text"
    )
    tell_use(out, chosen)
