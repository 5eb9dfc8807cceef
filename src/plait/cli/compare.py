"""`plait compare`: recipes are run under several seeds, and told apart from chance."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.commands import write_command
from plait.cli.evaluate import JsonOption
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
    from plait.results import Records
    from plait.results.comparison import Comparison


def compare(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE...",
            help="Packaged recipes or .toml files to run; or folders of runs that are finished.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder of the records and the page."),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, help="Runs of each recipe, a seed each.")
    ] = 3,
    against: Annotated[
        str | None,
        typer.Option(
            "--against", metavar="NAME", help="What others are held against; the first unless set."
        ),
    ] = None,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            metavar="NAME",
            help="Test this one, overall or a task's; may be repeated. All unless set.",
        ),
    ] = None,
    jobs: JobsOption = None,
    data: DataOption = None,
    override: OverrideOption = None,
    profile: ProfileOption = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the runs, models and all, in DIR/runs.")
    ] = False,
    as_json: JsonOption = False,
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

    Of folders, nothing is trained: finished runs whose recipes differ in nothing but the seed
    are taken together.
    """
    from plait.errors import RunError, UsageError
    from plait.reproduce import Order, name_rows
    from plait.results.comparison import compare_recipes

    folders = [Path(name) for name in recipes if Path(name).is_dir()]
    if folders:
        if len(folders) < len(recipes):
            raise UsageError("name recipes to run, or folders of finished runs, not both")
        records, names = _read_finished(folders)
        _show(compare_recipes(records, names, figure or (), against), out, as_json=as_json)
        return
    if out is None:
        raise UsageError("name a folder for the records with --out")
    overrides = tuple(override or ())
    order = Order(
        out=out,
        runs=out / "runs",
        profile=profile,
        num_seeds=seeds,
        first_seed=_first_seed(recipes[0], overrides, profile),
        overrides=overrides,
        keep=keep,
    )
    workers = Workers(jobs, make_engine(engine, address, cpus, gpus))
    failed = _run(recipes, order, workers, data)
    if (out / order.place).is_dir():
        from plait.results import read_records

        names = [row.recipe for row in name_rows(recipes, overrides, profile)]
        found = compare_recipes(read_records(out, order.place), names, figure or (), against)
        _show(found, out, as_json=as_json)
    if failed:
        told = ", ".join(failed)
        raise RunError(f"{len(failed)} could not be run: {told}; their reasons are told above")


def _read_finished(folders: Sequence[Path]) -> tuple[Records, list[str]]:
    """Read runs that nobody has to make; return their methods in the order named, too."""
    from plait.reproduce import find_runs, gather_records
    from plait.reproduce.work import OWN
    from plait.results.records import Record, Records

    found = gather_records(find_runs(folders), OWN)
    records = [Record.model_validate(values) for values in found]
    return Records(records), list(dict.fromkeys(record.recipe for record in records))


def _run(
    recipes: Sequence[str], order: Order, workers: Workers, data: str | None
) -> dict[str, str]:
    """Make the records that are missing; return the reasons of what failed."""
    from plait.cli.plan import read_amounts
    from plait.errors import UsageError
    from plait.reproduce import name_rows, plan_work

    rows = name_rows(recipes, order.overrides, order.profile)
    work = plan_work(rows, order, lambda config: read_amounts(config, data, {}))
    for run in work.runs.values():
        if not any(task.dev for task in run.config.tasks.values()):
            raise UsageError(f"{run.recipe} names no dev files: there is nothing to compare it by")
    say = partial(typer.echo, err=True)  # what is printed is the comparison
    return make_records(work, data, workers, _command(recipes, order, workers, data), say)


def _first_seed(recipe: str, overrides: Sequence[str], profile: str | None) -> int:
    from plait.config import lists_members, read_ensemble, read_recipe

    if lists_members(recipe):
        members = read_ensemble(recipe, overrides, profile=profile).members
        return next(iter(members.values())).seed
    return read_recipe(recipe, overrides, profile=profile).seed


def _command(recipes: Sequence[str], order: Order, workers: Workers, data: str | None) -> str:
    """Write the command that goes on."""
    options = {
        "--out": order.out,
        "--seeds": order.num_seeds,
        "--profile": order.profile,
        "--data": data,
        "--keep": order.keep,
    }
    words = ["plait", "compare", *recipes]
    return write_command(words, options, order.overrides, workers.words())


def _show(comparison: Comparison, out: Path | None, *, as_json: bool) -> None:
    """Print the tables, and write the page where there is a folder for it."""
    from plait.data.storage import write_text
    from plait.results.comparison import write_comparison

    if as_json:
        import json

        typer.echo(json.dumps(comparison.to_json(), indent=1, allow_nan=False))
    else:
        _print_tables(comparison)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "comparison.md", write_comparison(comparison))
        if not as_json:
            typer.echo(f"\nThe page is {out / 'comparison.md'}.")


def _print_tables(comparison: Comparison) -> None:
    from plait.cli.display import make_console, print_table

    console = make_console()
    typer.echo("")
    print_table(console, comparison.figure_table())
    if comparison.steps:
        typer.echo(f"\nAgainst {comparison.recipes[0]}:\n")
        told = [[cell.replace("`", "") for cell in row] for row in comparison.difference_table()]
        print_table(console, told, num_words=3)
    for caution in comparison.cautions():
        typer.echo(f"note: {caution}", err=True)
