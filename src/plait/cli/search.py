"""`plait search`: a recipe's settings are tried out, and the best become a recipe."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from plait.cli.commands import write_command
from plait.cli.jobs import AddressOption, CpusOption, EngineOption, GpusOption, make_engine
from plait.cli.train import DataOption, OverrideOption, RecipeArgument

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.scale.search import Search, Trial

MOST_SHOWN = 10
"""Trials in the table; trials.csv has all."""


def search(
    recipe: RecipeArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="OUT", help="Folder of the search; runs/NAME-search-TIME unless set."
        ),
    ] = None,
    space: Annotated[
        Path | None,
        typer.Option(
            "--space", metavar="FILE", help="TOML file with [search.space], over the recipe's own."
        ),
    ] = None,
    trials: Annotated[
        int, typer.Option("--trials", metavar="N", min=1, help="Trials in all.")
    ] = 20,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            metavar="N",
            min=1,
            help="Trials at a time: 1 unless given, or with Ray as many as there is room for.",
        ),
    ] = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
    holdout: Annotated[
        float | None,
        typer.Option(
            "--holdout",
            metavar="SHARE",
            help="Score on this share of the training rows, left out of training; not on dev.",
        ),
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(
            "--folds",
            metavar="K",
            help="Score on each of K parts of the training rows in turn, K runs a trial.",
        ),
    ] = None,
    prune: Annotated[
        bool,
        typer.Option("--prune/--no-prune", help="Give up trials that are behind the others."),
    ] = True,
    data: DataOption = None,
    override: OverrideOption = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Seed, over the recipe's.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the search in --out, same recipe.")
    ] = False,
) -> None:
    """Try settings out of a space; write the best as a recipe.

    Each trial is a run in OUT/trials, scored by the figure that the recipe's `select` names: on
    dev or, so that dev is scored once and by the chosen settings alone, on training rows held
    out (--holdout, --folds). OUT/trials.csv has every trial, OUT/best.toml trains the best.
    Settings are proposed by a tree-structured Parzen estimator that learns from earlier trials.
    Needs Optuna: pip install 'plait[search]'. With --engine ray, trials are trained on a Ray
    cluster, whose nodes share OUT and the data; those of a node that is lost are tried again.
    """
    from datetime import datetime

    from plait.config import read_recipe
    from plait.errors import RunError

    overrides = [*(override or ()), *(() if seed is None else (f"seed={seed}",))]
    config = read_recipe(recipe, overrides)
    if out is None:
        if resume:
            raise RunError("--resume needs --out OUT, the folder to go on in")
        stem = config.name.replace("/", "-")
        out = Path("runs") / f"{stem}-search-{datetime.now():%Y%m%d-%H%M%S}"

    from plait.scale.search import Search, find_runs, run_search

    num_folds, num_runs = find_runs(folds, holdout)
    wanted = Search(
        recipe=recipe,
        out=out,
        overrides=tuple(overrides),
        data=data,
        space=space,
        folds=num_folds,
        num_runs=num_runs,
        num_trials=trials,
        num_jobs=jobs,
        engine=make_engine(engine, address, cpus, gpus),
        prune=prune,
    )
    command = _resume_command(wanted)
    found = run_search(wanted, resume=resume, command=command, hear=_Teller(), note=_note)
    _show(found, config.select)
    best = found[0]
    if best.state != "done":
        raise RunError(f"no trial of {out} came to a score; the first: {best.note or best.state}")
    typer.echo(f"\nThe trials are in {out / 'trials.csv'}. Train the best settings with:")
    typer.echo(f"  plait train {quote(str(out / 'best.toml'))}")


def _note(sentence: str) -> None:
    typer.echo(f"note: {sentence}", err=True)


class _Teller:
    """Says on standard error what becomes of each trial."""

    def __init__(self) -> None:
        self.best = float("-inf")

    def __call__(self, trial: Trial) -> None:
        from plait.scale.search.space import show

        settings = ", ".join(f"{key} = {show(v)}" for key, v in trial.settings.items())
        said = f"trial {trial.number}: "
        if trial.state == "running":
            said += settings
        elif trial.state == "failed":
            said += f"failed: {trial.note}"
        else:
            said += f"{trial.state}, {_figure(trial)}"
            said += f" ({trial.note})" if trial.note else ""
            if trial.state == "done" and trial.figure is not None and trial.figure > self.best:
                self.best = trial.figure
                said += ", best so far"
        typer.echo(said, err=True)


def _figure(trial: Trial) -> str:
    return "none" if trial.figure is None else f"{trial.figure:.4f}"


def _resume_command(wanted: Search) -> str:
    several = wanted.num_runs > 1
    options = {
        "--out": wanted.out,
        "--space": wanted.space,
        "--trials": wanted.num_trials,
        "--jobs": wanted.num_jobs,
        "--folds": wanted.folds if several else None,
        "--holdout": f"{1 / wanted.folds:.6g}" if wanted.folds and not several else None,
        "--no-prune": not wanted.prune,
        "--data": wanted.data,
    }
    words, more = ["plait", "search", wanted.recipe], [*wanted.engine.words(), "--resume"]
    return write_command(words, options, wanted.overrides, more)


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
