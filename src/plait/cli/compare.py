"""`plait compare`: train recipes with several seeds and test the differences of their scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.options import (
    DataOption,
    JobsOption,
    JsonOption,
    OverrideOption,
    resume_command,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.analysis.seeds import Comparison
    from plait.config import RunConfig


def compare(
    recipes: Annotated[
        list[str],
        typer.Argument(
            metavar="RECIPE",
            help="Packaged recipes or .toml files to train, or folders of finished runs.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder of the runs and of the results."),
    ] = None,
    seeds: Annotated[
        int, typer.Option("--seeds", metavar="N", min=1, help="Runs per recipe, one per seed.")
    ] = 3,
    against: Annotated[
        str | None,
        typer.Option("--against", metavar="NAME", help="Reference recipe. Default: the first."),
    ] = None,
    jobs: JobsOption = None,
    data: DataOption = None,
    override: OverrideOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train recipes with several seeds and test the differences.

    Every recipe is trained with the same seeds, counted up from the first recipe's seed, into
    DIR/NAME/seed-N. Each recipe is compared with the first one, score by score, with a paired
    t-test; p-values are Holm-corrected. The table is printed and written to DIR/compare.md and
    DIR/compare.json.

    After a stop, the same command continues; with more seeds or recipes, only the missing runs are
    trained. Folders of finished runs can be named in place of recipes.
    """
    from plait.analysis.seeds import compare_runs, find_runs
    from plait.cli.runs import raise_failed, train_runs
    from plait.errors import UsageError
    from plait.scale import Jobs
    from plait.scale.cluster import check_engine
    from plait.scale.running import Runs

    how = Jobs.read(jobs)
    check_engine(how.engine)
    folders: list[Path] = []
    wanted: dict[str, tuple[RunConfig, Path]] = {}
    named = [name for name in recipes if not Path(name).is_dir()]
    if named and out is None:
        raise UsageError("name a folder for the runs with --out")
    new = _plan(named, out or Path(), seeds, override or ())
    for name in recipes:
        if Path(name).is_dir():
            folders += find_runs(Path(name))
        else:
            wanted |= new[name]
            folders += [folder for _, folder in new[name].values()]
    failed: dict[str, str] = {}
    if wanted:
        command = resume_command(resume=False)
        failed = train_runs(Runs(wanted, data, command), how)
    lost = {wanted[name][1] for name in failed}
    if remaining := [folder for folder in folders if folder not in lost]:
        _show(compare_runs(remaining, against), out, as_json=as_json)
    raise_failed(failed)


def _plan(
    recipes: Sequence[str], out: Path, num_seeds: int, overrides: Sequence[str]
) -> dict[str, dict[str, tuple[RunConfig, Path]]]:
    """Return the runs of each recipe, by name, with their folders."""
    from plait.config import lists_members, read_recipe
    from plait.errors import RunError, UsageError
    from plait.inference.folders import RunFolder

    found: dict[str, dict[str, tuple[RunConfig, Path]]] = {}
    first: int | None = None
    for recipe in recipes:
        if lists_members(recipe):
            raise UsageError(
                f"{recipe} lists members: train it with `plait train` for each seed, then compare "
                "the folders"
            )
        config = read_recipe(recipe, overrides)
        if any(config.name == c.name for runs in found.values() for c, _ in runs.values()):
            raise UsageError(f"{recipe} is called {config.name!r}, as another recipe; rename it")
        if not any(task.dev_files for task in config.tasks.values()):
            raise UsageError(f"{recipe} has no dev files, so there are no scores to compare")
        first = config.seed if first is None else first
        runs = {}
        for seed in range(first, first + num_seeds):
            folder = RunFolder(out / config.name / f"seed-{seed}")
            own = config.model_copy(update={"seed": seed})
            if folder.scores.exists() and (changed := folder.find_changes(own)):
                raise RunError(
                    f"{folder.path} was trained with other settings ({'; '.join(changed[:3])}); "
                    "choose another --out"
                )
            runs[f"{config.name}, seed {seed}"] = own, folder.path
        found[recipe] = runs
    return found


def _show(comparison: Comparison, out: Path | None, *, as_json: bool) -> None:
    """Print the comparison, and write it to the folder where one is given."""
    from plait.cli.display import make_console, print_table
    from plait.data.storage import write_text

    text = json.dumps(comparison.to_json(), indent=1)
    if as_json:
        typer.echo(text)
    else:
        print_table(make_console(), comparison.table(), num_words=3)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        write_text(out / "compare.json", text + "\n")
        write_text(out / "compare.md", comparison.to_markdown())
        typer.echo(f"\nWritten: {out / 'compare.md'} and {out / 'compare.json'}", err=as_json)
