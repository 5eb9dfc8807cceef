"""`plait reproduce`: published rows are run, and a small record of each is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.commands import write_command
from plait.cli.jobs import (
    AddressOption,
    CpusOption,
    EngineOption,
    GpusOption,
    JobsOption,
    make_engine,
)
from plait.cli.orders import Workers, make_records
from plait.cli.train import DataOption, OverrideOption

if TYPE_CHECKING:
    from plait.reproduce import Order

RECORDS, PROFILE = Path("results/reproduce"), "small"  # what `plait results` reads unless told


def reproduce(
    rows: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ROW]...",
            help="Systems (a), tables (a/2) or rows (a/annealed), run in this order; everything if "
            "left out.",
        ),
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="small (e5-small), packaged, or published for BERT-base as the reports have it.",
        ),
    ] = PROFILE,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, help="Runs of each row, a seed each.")
    ] = 1,
    jobs: JobsOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder of the records.")
    ] = RECORDS,
    runs: Annotated[Path, typer.Option("--runs", metavar="DIR", help="Folder to train in.")] = Path(
        "runs/reproduce"
    ),
    data: DataOption = None,
    override: OverrideOption = None,
    alone: Annotated[
        bool,
        typer.Option(
            "--each-alone", help="Train each task of the rows by itself, with its share of budget."
        ),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the runs, models and all, not just their records.")
    ] = False,
    list_only: Annotated[
        bool, typer.Option("--list", help="Only say what is done and what is still to run.")
    ] = False,
) -> None:
    """Run rows of the published tables and keep a record of each.

    A record is a small JSON file: recipe, settings, seed, versions, hardware, time, memory, all
    figures and the curves. What has one is not run again, nor is a row that only repeats another;
    the same command goes on after a stop. `plait results` makes a page of the records.

    With --engine ray, runs are trained on a Ray cluster, whose nodes share --runs and --data; those
    of a node that is lost are tried again.
    """
    from plait.cli.plan import read_amounts
    from plait.errors import RunError
    from plait.reproduce import Order, find_rows, plan_work

    found = find_rows(rows or ())
    workers = Workers(jobs, make_engine(engine, address, cpus, gpus))
    order = Order(
        out=out,
        runs=runs,
        profile=profile,
        num_seeds=seeds,
        overrides=tuple(override or ()),
        alone=alone,
        keep=keep,
    )
    work = plan_work(found, order, lambda config: read_amounts(config, data, {}))
    if list_only:
        for name in [*work.runs, *(ensemble.name for ensemble in work.ensembles)]:
            typer.echo(f"to run: {name}")
        typer.echo(f"{work.num_done} done, {len(work.runs) + len(work.ensembles)} to run")
        return
    failed = make_records(work, data, workers, _command(rows or [], order, workers, data))
    aliases = {alias: row.recipe for row in found for alias in row.aliases}
    for alias, recipe in aliases.items() if not alone else ():
        typer.echo(f"{alias} is the same run as {recipe}")
    if (out / order.place).is_dir():
        typer.echo(f"The records are in {out}. Make a page of them with: {_page_command(order)}")
    if failed:
        names = ", ".join(failed)
        raise RunError(f"{len(failed)} could not be run: {names}; their reasons are told above")


def _command(rows: list[str], order: Order, workers: Workers, data: str | None) -> str:
    """Write the command that goes on."""
    options = {
        "--profile": order.place,
        "--seeds": order.num_seeds,
        "--out": order.out,
        "--runs": order.runs,
        "--data": data,
        "--each-alone": order.alone,
        "--keep": order.keep,
    }
    words = ["plait", "reproduce", *rows]
    return write_command(words, options, order.overrides, workers.words())


def _page_command(order: Order) -> str:
    """Write the command that makes a page of the records; not over that of the usual ones."""
    options: dict[str, object] = {}
    if (order.out, order.profile) != (RECORDS, PROFILE):
        name = f"{order.out.name}-{order.place}"
        options = {
            "--records": order.out,
            "--profile": order.place,
            "--out": f"{name}.md",
            "--pictures": f"{name}-pictures",
        }
    return write_command(["plait", "results"], options)
