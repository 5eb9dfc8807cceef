"""`plait augment`: new unlabelled rows made of a task's training texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from plait.cli.options import (
    DataOption,
    OverrideOption,
    RecipeArgument,
    TaskOption,
    check_new_file,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.cli.display import Display
    from plait.config import RunConfig


NEIGHBOURS = {"pairs": 5, "words": 15}


def augment(
    recipe: RecipeArgument,
    method: Annotated[
        Literal["pairs", "words"],
        typer.Option("--method", help="pairs: similar texts; words: other words."),
    ],
    task: TaskOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="New CSV file. Default: METHOD.csv."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", min=1, help="Number of rows to write.")
    ] = None,
    neighbours: Annotated[
        int | None,
        typer.Option(
            "--neighbours",
            metavar="N",
            min=1,
            help="Pairs per text, or candidates per word. Default: 5 and 15.",
        ),
    ] = None,
    data: DataOption = None,
    override: OverrideOption = None,
) -> None:
    """Make unlabelled rows of training texts, for distillation or manual labelling.

    pairs: pairs of similar training texts that are not in a file yet. words: training rows with
    some words replaced by similar ones. Similarity is that of the untrained encoder's vectors, and
    texts of dev and test are left out.

    Use the file as a task's `unlabelled` rows in a stage that distils.
    """
    from plait.cli.display import Display
    from plait.config import read_recipe

    out = out or Path(f"{method}.csv")
    check_new_file(out, "--out")
    config = read_recipe(recipe, override or ())
    able = [name for name, spec in config.tasks.items() if spec.is_pair or method == "words"]
    chosen = _choose_task(config, task, able)
    with Display() as display:
        make = _make_pairs if method == "pairs" else _make_rows
        done = make(config, chosen, data, neighbours or NEIGHBOURS[method], count, out, display)
    typer.echo(done)
    typer.echo(
        f'To train on them: unlabelled = "{out.resolve()}" in [tasks.{chosen}] of a recipe that '
        "distils (docs/how-to/distill.md)"
    )


def _make_pairs(
    config: RunConfig,
    task: str,
    data: str | None,
    neighbours: int,
    count: int | None,
    out: Path,
    display: Display,
) -> str:
    """Write pairs of similar texts and describe them."""
    from plait.errors import UsageError
    from plait.inference.unlabelled import find_pairs

    made = find_pairs(
        config,
        task,
        data=data,
        neighbours=neighbours,
        count=count,
        reading=display.reading,
        progress=display.work,
    )
    _note_missing(made.missing, display)
    if not made.texts:
        raise UsageError(f"{task} has no new pairs of similar texts")
    _write_texts(made.texts, config.tasks[task].text, out, similarity=made.similarity)
    return (
        f"{len(made.texts):,} pairs of {made.num_texts:,} texts are in {out}, similarity "
        f"{made.similarity[0]:.2f} to {made.similarity[-1]:.2f}. Left out: {made.known:,} known "
        f"pairs, {made.held_out:,} texts of dev or test"
    )


def _make_rows(
    config: RunConfig,
    task: str,
    data: str | None,
    neighbours: int,
    count: int | None,
    out: Path,
    display: Display,
) -> str:
    """Write rows with replaced words and describe them."""
    from plait.inference.unlabelled import vary_rows

    made = vary_rows(
        config,
        task,
        data=data,
        neighbours=neighbours,
        count=count,
        reading=display.reading,
        progress=display.work,
    )
    _note_missing(made.missing, display)
    if count is not None and len(made.rows) < count:
        display.note(f"only {len(made.rows):,} different rows could be made")
    _write_texts(made.rows, config.tasks[task].text, out)
    return (
        f"{len(made.rows):,} rows made of {made.num_rows:,} are in {out}; {made.num_words:,} words "
        f"could be replaced. Left out: {made.known:,} known rows, {made.held_out:,} with a text of "
        "dev or test"
    )


def _choose_task(config: RunConfig, task: str | None, able: Sequence[str]) -> str:
    """Return the named task, or the only one."""
    from plait.errors import UsageError, suggest

    if task is None:
        if len(able) != 1:
            names = ", ".join(able) or "no task has pairs"
            raise UsageError(f"name the task with --task ({names})")
        return able[0]
    if task not in config.tasks:
        raise UsageError(f"{config.name} has no task {task!r}{suggest(task, config.tasks)}")
    return task


def _note_missing(paths: Sequence[str], display: Display) -> None:
    for path in paths:
        display.note(f"{path} does not exist, so its texts cannot be left out")


def _write_texts(
    rows: Sequence[tuple[str, ...]], columns: Sequence[str], out: Path, **more: Any
) -> None:
    """Write texts under the task's column names, and more columns of numbers, as CSV."""
    import pyarrow as pa
    import pyarrow.csv

    from plait.data.storage import disk_full_told

    texts = zip(columns, zip(*rows, strict=True), strict=True)
    table = {name: pa.array(some, pa.string()) for name, some in texts}
    table |= {name: pa.array(values).cast(pa.float64()) for name, values in more.items()}
    with disk_full_told(out):
        pyarrow.csv.write_csv(pa.table(table), out)
