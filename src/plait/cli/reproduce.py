"""`plait reproduce`: published rows are run, and a small record of each is kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from plait.cli.jobs import (
    AddressOption,
    CpusOption,
    EngineOption,
    GpusOption,
    JobsOption,
    make_engine,
)
from plait.cli.train import DataOption, OverrideOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.engines import Engine
    from plait.reproduce import Order, Run, Work

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
    workers = _Workers(jobs, make_engine(engine, address, cpus, gpus))
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
    failed = _train(work, data, workers, _command(rows or [], order, workers, data))
    _combine(work, data, failed)
    aliases = {alias: row.recipe for row in found for alias in row.aliases}
    for alias, recipe in aliases.items() if not alone else ():
        typer.echo(f"{alias} is the same run as {recipe}")
    if (out / profile).is_dir():
        typer.echo(f"The records are in {out}. Make a page of them with: {_page_command(order)}")
    if failed:
        names = ", ".join(failed)
        raise RunError(f"{len(failed)} could not be run: {names}; their reasons are told above")


class _Workers(NamedTuple):
    """Who makes the runs, and how many at once."""

    num_jobs: int | None
    engine: Engine


def _command(rows: list[str], order: Order, workers: _Workers, data: str | None) -> str:
    """Write the command that goes on."""
    import shlex

    words = ["plait", "reproduce", *rows, "--profile", order.profile]
    words += ["--seeds", str(order.num_seeds), "--out", str(order.out), "--runs", str(order.runs)]
    words += ["--jobs", str(workers.num_jobs)] if workers.num_jobs else []
    words += workers.engine.words()
    words += ["--data", data] if data else []
    words += ["--each-alone"] if order.alone else []
    words += ["--keep"] if order.keep else []
    for override in order.overrides:
        words += ["-o", override]
    return shlex.join(words)


def _page_command(order: Order) -> str:
    """Write the command that makes a page of the records; not over that of the usual ones."""
    import shlex

    words = ["plait", "results"]
    if (order.out, order.profile) != (RECORDS, PROFILE):
        name = f"{order.out.name}-{order.profile}"
        words += ["--records", str(order.out), "--profile", order.profile]
        words += ["--out", f"{name}.md", "--pictures", f"{name}-pictures"]
    return shlex.join(words)


def _train(work: Work, data: str | None, workers: _Workers, command: str) -> dict[str, str]:
    """Make the runs; return the reasons of those that failed."""
    failed: dict[str, str] = {}
    total = len(work.runs)
    if not total:
        typer.echo(f"{work.num_done} records are there already: nothing is left to train")
        return failed

    def hear(name: str) -> None:
        _tell(name, work.finish(work.runs[name]))

    if (workers.num_jobs or 1) > 1 or workers.engine.is_ray:
        from plait.cli.jobs import train_at_once
        from plait.engines.running import Runs

        wanted = {name: (run.config, run.folder) for name, run in work.runs.items()}
        runs = Runs(wanted, data, command)
        train_at_once(runs, workers.num_jobs, workers.engine, hear=hear, failed=failed)
        return failed
    for number, run in enumerate(work.runs.values(), 1):
        if _train_one(run, f"{number} of {total}", data, command, failed):
            hear(run.name)
    return failed


def _train_one(
    run: Run, place: str, data: str | None, command: str, failed: dict[str, str]
) -> bool:
    """Train a run here, or go on with it; say whether it came to its end."""
    from plait.cli.display import Display
    from plait.cli.train import resumable
    from plait.errors import Interrupted, PlaitError
    from plait.runs import train

    with resumable(run.folder, command), Display() as display:
        display.note(f"{place}: {run.name}")
        display.begin("loading")
        try:
            train(
                run.config,
                run.folder,
                data=data,
                resume=run.folder.exists(),
                command=command,
                listeners=[display],
            )
        except Interrupted:
            raise
        except PlaitError as error:
            failed[run.name] = str(error)
            display.note(f"{run.name} failed: {error}")
            return False
    return True


def _combine(work: Work, data: str | None, failed: dict[str, str]) -> None:
    """Make the ensembles of what was trained."""
    from plait.cli.display import Display

    for ensemble in list(work.ensembles):
        if lost := [run.name for run in ensemble.runs.values() if run.name in failed]:
            failed[ensemble.name] = f"its member {lost[0]} failed"
            continue
        with Display() as display:
            display.begin("scoring")
            record = work.finish_ensemble(ensemble, data, display.scoring)
        _tell(ensemble.name, record)


def _tell(name: str, record: Mapping[str, Any]) -> None:
    from plait.cli.display import figure

    scores = record.get("dev")
    if scores is None:
        typer.echo(f"{name}: no dev set to score")
        return
    figures = "  ".join(f"{task} {figure(value)}" for task, value in scores["primary"].items())
    overall = figure(scores["summary"]["overall"])
    typer.echo(f"{name}: {figures}  overall {overall}  ({record['seconds']:.0f} s)")
