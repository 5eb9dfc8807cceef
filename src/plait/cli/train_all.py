"""`plait train-all`: several recipes become runs, some at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from plait.cli.train import DataOption, OverrideOption

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.config import RunConfig


def train_all(
    recipes: Annotated[
        list[str],
        typer.Argument(metavar="RECIPE...", help="Names of packaged recipes, or .toml files."),
    ],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder of the runs, one for each.")
    ],
    jobs: JobsOption = None,
    data: DataOption = None,
    override: OverrideOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
) -> None:
    """Train several recipes, each into DIR/NAME.

    Those that are finished there are passed over, and those that were begun are gone on with: the
    same command goes on after a stop. One that fails does not end the others.

    With --engine ray, runs are trained on a Ray cluster, whose nodes share DIR and the data; those
    of a node that is lost are tried again.
    """
    from plait.cli.jobs import train_at_once
    from plait.errors import RunError
    from plait.scale.running import Runs

    workers = make_engine(engine, address, cpus, gpus)
    runs = _read(recipes, out, override or [])
    failed: dict[str, str] = {}
    options = {"--out": out, "--jobs": jobs, "--data": data}
    words = ["plait", "train-all", *recipes]
    command = write_command(words, options, override or (), workers.words())
    train_at_once(Runs(runs, data, command), jobs, workers, failed=failed)
    _show({name: run for name, (_, run) in runs.items() if name not in failed})
    typer.echo(f"\nThe runs are in {out}.")
    if failed:
        names = ", ".join(failed)
        raise RunError(f"{len(failed)} could not be trained: {names}; their reasons are told above")


def _read(
    recipes: Sequence[str], out: Path, overrides: Sequence[str]
) -> dict[str, tuple[RunConfig, Path]]:
    """Read all recipes before the first is trained; refuse two that would share a folder."""
    from plait.config import lists_members, read_recipe
    from plait.errors import RunError, UsageError
    from plait.inference.folders import RunFolder

    runs: dict[str, tuple[RunConfig, Path]] = {}
    for recipe in recipes:
        if lists_members(recipe):
            raise UsageError(f"{recipe} lists members; train it by itself with `plait train`")
        config = read_recipe(recipe, overrides)
        name = config.name.replace("/", "-")
        if name in runs:
            raise UsageError(
                f"{recipe} is called {config.name!r}, as another of the recipes is; its run "
                "would be in the same folder"
            )
        folder = RunFolder(out / name)
        if folder.scores.exists() and (changed := folder.find_changes(config)):
            raise RunError(
                f"{folder.path} was trained with another recipe ({'; '.join(changed[:3])}); choose "
                "another --out"
            )
        runs[name] = config, folder.path
    return runs


def _show(runs: Mapping[str, Path]) -> None:
    """Print the dev figures of the runs, a line for each."""
    from plait.cli.display import figure, make_console, print_table
    from plait.inference.folders import RunFolder

    results: dict[str, Any] = {}
    for name, run in runs.items():
        folder = RunFolder(run)
        results[name] = folder.read_json(folder.scores).get("dev")
    tasks = list(dict.fromkeys(t for dev in results.values() if dev for t in dev["primary"]))
    rows = [["run", *tasks, "overall"]]
    for name, dev in results.items():
        primary = dev["primary"] if dev else {}
        figures = [figure(primary[task]) if task in primary else "" for task in tasks]
        rows.append([name, *figures, figure(dev["summary"]["overall"]) if dev else "no dev set"])
    print_table(make_console(), rows)
