"""`plait compare`: recipes are run under several seeds, and told apart from chance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.jobs import (
    AddressOption,
    CpusOption,
    EngineOption,
    GpusOption,
    JobsOption,
    make_engine,
)
from plait.cli.orders import Workers, make_records
from plait.cli.train import DataOption, OverrideOption, ProfileOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.reproduce import Order
    from plait.results.comparison import Comparison


def compare(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE...",
            help="Packaged recipes or .toml files; the first is what the others are held against.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder of the records and the page.")
    ],
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, help="Runs of each recipe, a seed each.")
    ] = 3,
    jobs: JobsOption = None,
    data: DataOption = None,
    override: OverrideOption = None,
    profile: ProfileOption = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the runs, models and all, in DIR/runs.")
    ] = False,
    engine: EngineOption = "local",
    address: AddressOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
) -> None:
    """Run recipes under several seeds; tell gains from chance.

    All recipes get the same seeds, counted up from the first one's. A small record of each run
    is kept, and a page of them all is written to DIR/comparison.md: means and spread, differences
    from the first recipe with a test, settings in which they differ. The same command goes on
    after a stop; with more seeds or more recipes it runs what is missing.
    """
    from plait.cli.plan import read_amounts
    from plait.errors import RunError, UsageError
    from plait.reproduce import Order, name_rows, plan_work
    from plait.results import read_records
    from plait.results.comparison import compare_recipes

    overrides = tuple(override or ())
    rows = name_rows(recipes, overrides, profile)
    workers = Workers(jobs, make_engine(engine, address, cpus, gpus))
    order = Order(
        out=out,
        runs=out / "runs",
        profile=profile,
        num_seeds=seeds,
        first_seed=_first_seed(recipes[0], overrides, profile),
        overrides=overrides,
        keep=keep,
    )
    work = plan_work(rows, order, lambda config: read_amounts(config, data, {}))
    for run in work.runs.values():
        if not any(task.dev for task in run.config.tasks.values()):
            raise UsageError(f"{run.recipe} names no dev files: there is nothing to compare it by")
    failed = make_records(work, data, workers, _command(recipes, order, workers, data))
    if (out / order.place).is_dir():
        records = read_records(out, order.place)
        _show(compare_recipes(records, [row.recipe for row in rows]), out / "comparison.md")
    if failed:
        names = ", ".join(failed)
        raise RunError(f"{len(failed)} could not be run: {names}; their reasons are told above")


def _first_seed(recipe: str, overrides: Sequence[str], profile: str | None) -> int:
    from plait.config import lists_members, read_ensemble, read_recipe

    if lists_members(recipe):
        members = read_ensemble(recipe, overrides, profile=profile).members
        return next(iter(members.values())).seed
    return read_recipe(recipe, overrides, profile=profile).seed


def _command(recipes: Sequence[str], order: Order, workers: Workers, data: str | None) -> str:
    """Write the command that goes on."""
    import shlex

    words = ["plait", "compare", *recipes, "--out", str(order.out), "--seeds", str(order.num_seeds)]
    words += ["--profile", order.profile] if order.profile else []
    words += workers.words()
    words += ["--data", data] if data else []
    words += ["--keep"] if order.keep else []
    for override in order.overrides:
        words += ["-o", override]
    return shlex.join(words)


def _show(comparison: Comparison, page: Path) -> None:
    """Print the tables, and write the page."""
    from plait.cli.display import make_console, print_table
    from plait.results.comparison import write_comparison
    from plait.training.checkpoint import write_text

    console = make_console()
    typer.echo("")
    print_table(console, comparison.figure_table())
    if comparison.steps:
        typer.echo(f"\nAgainst {comparison.recipes[0]}:\n")
        told = [[cell.replace("`", "") for cell in row] for row in comparison.difference_table()]
        print_table(console, told, num_words=3)
    for caution in comparison.cautions():
        typer.echo(f"note: {caution}", err=True)
    write_text(page, write_comparison(comparison))
    typer.echo(f"\nThe page is {page}.")
