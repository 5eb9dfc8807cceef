"""`plait pairs`: new pairs of a task's training texts, for a teacher or a person to label."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.evaluate import check_new_file
from plait.cli.train import DataOption, OverrideOption, RecipeArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.config import RunConfig


def pairs(
    recipe: RecipeArgument,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="TASK", help="Whose texts; needless if one has pairs."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="CSV file to write.")] = Path(
        "pairs.csv"
    ),
    data: DataOption = None,
    neighbours: Annotated[
        int,
        typer.Option("--neighbours", metavar="N", min=1, help="Pairs of each text."),
    ] = 5,
    least: Annotated[
        float,
        typer.Option(
            "--least", metavar="COSINE", min=-1, max=1, help="Similarity that a pair must have."
        ),
    ] = -1.0,
    count: Annotated[
        int | None,
        typer.Option("--count", metavar="N", min=1, help="Draw so many of the pairs; all if not."),
    ] = None,
    override: OverrideOption = None,
) -> None:
    """Pair training texts that are alike, without labels.

    Which are alike is told by the recipe's encoder, as it is before training. Texts that dev or
    test has are left out, and so are pairs that a file has already. The file has the task's text
    columns and `similarity`; a stage that distils takes it as the task's `unlabelled` rows, and
    its teacher answers them.
    """
    from plait.cli.display import Display
    from plait.config import read_recipe
    from plait.errors import UsageError

    check_new_file(out, "--out")
    config = read_recipe(recipe, override or ())
    able = [name for name, spec in config.tasks.items() if spec.is_pair]
    chosen = choose_task(config, task, able, "pair")
    with Display() as display:
        from plait.inference.unlabelled import find_pairs

        made = find_pairs(
            config,
            chosen,
            data=data,
            neighbours=neighbours,
            least=least,
            count=count,
            reading=display.reading,
            progress=display.work,
        )
        for path in made.missing:
            display.note(f"{path} is not there, so its texts cannot be left out")
    if not made.texts:
        raise UsageError(
            f"no two texts of {chosen} are so much alike and new; lower --least, or raise "
            "--neighbours"
        )
    write_texts(made.texts, config.tasks[chosen].text, out, similarity=made.similarity)
    typer.echo(
        f"{len(made.texts):,} pairs of {made.num_texts:,} texts are in {out}, similarity "
        f"{made.similarity[0]:.2f} to {made.similarity[-1]:.2f}; left out: {made.known:,} pairs "
        f"that a file has, {made.held_out:,} texts that dev or test has"
    )
    tell_use(out, chosen)


def choose_task(config: RunConfig, task: str | None, able: Sequence[str], doing: str) -> str:
    """Return the task that is named, or the only one that is able."""
    from plait.errors import UsageError, suggest

    if task is None:
        if len(able) != 1:
            told = ", ".join(able) or "none has pairs"
            raise UsageError(f"--task must say whose texts to {doing} ({told})")
        return able[0]
    if task not in config.tasks:
        told = suggest(task, config.tasks)
        raise UsageError(f"--task {task!r} is no task of {config.name}{told}")
    return task


def write_texts(
    rows: Sequence[tuple[str, ...]], columns: Sequence[str], out: Path, **more: Any
) -> None:
    """Write a CSV file of texts, under a task's own names, and more columns of numbers."""
    import pyarrow as pa
    import pyarrow.csv

    from plait.data.storage import disk_full_told

    texts = zip(columns, zip(*rows, strict=True), strict=True)
    table = {name: pa.array(some, pa.string()) for name, some in texts}
    table |= {name: pa.array(values).cast(pa.float64()) for name, values in more.items()}
    with disk_full_told(out):
        pyarrow.csv.write_csv(pa.table(table), out)


def tell_use(out: Path, task: str) -> None:
    """Say how a file of rows without labels is trained on."""
    typer.echo(
        f'To train on them: unlabelled = "{out.resolve()}" in [tasks.{task}] of a recipe that '
        "distils (docs/how-to/distill.md)"
    )
