"""`plait search`: search hyperparameters and save the best as a recipe."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.options import (
    DataOption,
    JobsOption,
    OverrideOption,
    RecipeArgument,
    resume_command,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.scale.search import Trial

MOST_SHOWN = 10
"""Trials in the table; trials.csv has all."""


def search(
    recipe: RecipeArgument,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder. Default: runs/NAME-search-TIME."),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", metavar="N", min=1, help="Total number of trials.")
    ] = 20,
    jobs: JobsOption = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            "--holdout",
            metavar="SHARE",
            help="Score on this share of the training rows, not on dev.",
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            "--folds",
            metavar="K",
            help="Score by K-fold cross-validation on the training rows.",
        ),
    ] = None,
    data: DataOption = None,
    override: OverrideOption = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the search in --out.")] = False,
) -> None:
    """Search hyperparameters; save the best as a recipe.

    Each trial is a run in DIR/trials, with settings proposed by Optuna's tree-structured Parzen
    estimator. Its score is the recipe's `select` on dev, or on held-out training rows (--holdout,
    --folds), which leaves dev for the final score. DIR/trials.csv has every trial, DIR/best.toml is
    the recipe of the best one. Trials below the median are stopped early (search.prune).

    Needs pip install 'plait[search]'.
    """
    from datetime import datetime

    from plait.config import read_recipe
    from plait.errors import RunError
    from plait.scale import Jobs
    from plait.scale.cluster import check_engine

    how = Jobs.read(jobs)
    overrides = override or []
    config = read_recipe(recipe, overrides)
    if out is None:
        if resume:
            raise RunError("--resume needs --out DIR, the folder of the search to continue")
        stem = config.name.replace("/", "-")
        out = Path("runs") / f"{stem}-search-{datetime.now():%Y%m%d-%H%M%S}"
        command = resume_command("--out", out)
    else:
        command = resume_command()

    from plait.scale.search import Search, find_runs, run_search

    num_folds, num_runs = find_runs(folds, holdout)
    wanted = Search(
        recipe=recipe,
        out=out,
        overrides=tuple(overrides),
        data=data,
        folds=num_folds,
        num_runs=num_runs,
        num_trials=trials,
        num_jobs=how.at_once,
        engine=how.engine,
        prune=config.search.prune,
    )
    check_engine(how.engine)
    found = run_search(wanted, resume=resume, command=command, hear=TrialPrinter(), note=_note)
    _show(found, config.select)
    best = found[0]
    if best.state != "done":
        raise RunError(f"All trials failed. First error: {best.note or best.state}")
    typer.echo(f"\nThe trials are in {out / 'trials.csv'}. Train the best one with:")
    typer.echo(f"  plait train {quote(str(out / 'best.toml'))}")


def _note(sentence: str) -> None:
    typer.echo(f"note: {sentence}", err=True)


class TrialPrinter:
    """Prints the result of each trial on standard error."""

    def __init__(self) -> None:
        self.best = float("-inf")

    def __call__(self, trial: Trial) -> None:
        """Print the state of a trial."""
        from plait.scale.search.space import show

        settings = ", ".join(f"{key} = {show(v)}" for key, v in trial.settings.items())
        line = f"trial {trial.number}: "
        if trial.state == "running":
            line += settings
        elif trial.state == "failed":
            line += f"failed: {trial.note}"
        else:
            line += f"{trial.state}, {_figure(trial)}"
            line += f" ({trial.note})" if trial.note else ""
            if trial.state == "done" and trial.figure is not None and trial.figure > self.best:
                self.best = trial.figure
                line += ", best so far"
        typer.echo(line, err=True)


def _figure(trial: Trial) -> str:
    return "none" if trial.figure is None else f"{trial.figure:.4f}"


def _show(trials: Sequence[Trial], select: str) -> None:
    from plait.cli.display import make_console, print_table, shorten
    from plait.scale.search.space import show

    keys = list(trials[0].settings)
    rows = [["trial", "state", select, *keys]]
    for trial in trials[:MOST_SHOWN]:
        values = (trial.settings[key] for key in keys)
        shown = (f"{v:.4g}" if isinstance(v, float) else shorten(show(v), 40) for v in values)
        rows.append([str(trial.number), trial.state, _figure(trial), *shown])
    console = make_console()
    print_table(console, rows, num_words=2)
    if len(trials) > MOST_SHOWN:
        console.print(f"and {len(trials) - MOST_SHOWN} more")
