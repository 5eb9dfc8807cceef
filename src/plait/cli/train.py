"""`plait train`: a recipe becomes a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.config import TaskConfig

RecipeArgument = Annotated[
    str, typer.Argument(help="Name of a packaged recipe, or path of a .toml file.")
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="Folder the recipe's files are in (PLAIT_DATA)."),
]
OverrideOption = Annotated[
    list[str] | None,
    typer.Option("-o", "--override", metavar="KEY=VALUE", help="Set one of the recipe's settings."),
]


def train(
    recipe: RecipeArgument,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="RUN", help="Folder of the run.")
    ] = None,
    data: DataOption = None,
    override: OverrideOption = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, same recipe.")
    ] = False,
    seed: Annotated[int | None, typer.Option("--seed", help="Seed, over the recipe's.")] = None,
) -> None:
    """Train one encoder on all tasks of a recipe.

    The run is a folder (runs/NAME-TIME unless --out names one) with the resolved recipe, the
    best model, its scores and a checkpoint to go on from. Ctrl-C saves and says how to resume.
    """
    from datetime import datetime

    from plait.config import read_recipe
    from plait.errors import RunError

    overrides = [*(override or ()), *(() if seed is None else (f"seed={seed}",))]
    config = read_recipe(recipe, overrides)
    if out is None:
        if resume:
            raise RunError("--resume needs --out RUN, the folder to go on in")
        stem = config.name.replace("/", "-")
        out = Path("runs") / f"{stem}-{datetime.now():%Y%m%d-%H%M%S}"
    command = resume_command(recipe, out, data, overrides)

    from plait.cli.display import Display
    from plait.training.run import train as run_training

    display = Display()
    outcome = run_training(
        config, out, data=data, resume=resume, command=command, listeners=[display]
    )
    show_outcome(outcome.result, {}, config.tasks)
    typer.echo(f"\nThe run is in {out}. Next:\n  plait evaluate {out}\n  plait predict {out} ...")


def resume_command(recipe: str, out: Path, data: str | None, overrides: list[str]) -> str:
    """Write the command that goes on with a run."""
    import shlex

    words = ["plait", "train", recipe, "--out", str(out)]
    words += ["--data", data] if data else []
    for override in overrides:
        words += ["-o", override]
    return shlex.join([*words, "--resume"])


def show_outcome(
    result: dict[str, Any], before: Mapping[str, float], tasks: Mapping[str, TaskConfig]
) -> None:
    """Print a finished run's table of dev scores."""
    from rich.console import Console

    from plait.cli.display import figure, score_table
    from plait.evaluate import primary_metric

    console = Console(highlight=False, soft_wrap=True)
    if "dev" not in result:
        done = f"{result['steps']} updates in {result['seconds']:.0f} s"
        console.print(f"{done}; there is no dev set to score.")
        return
    dev, baseline = result["dev"], result["baseline"]
    columns = {"baseline": baseline["primary"]}
    if before:
        columns["before"] = before
    columns["trained"] = dev["primary"]
    metrics = {name: primary_metric(tasks[name], tasks[name].metric) for name in dev["primary"]}
    console.print()
    console.print(score_table(metrics, columns))
    summary = dev["summary"]
    console.print(
        f"\noverall {figure(summary['overall'])}, mean {figure(summary['mean'])}, "
        f"sum {summary['sum']:.3f} on dev; best after {result['best_step']} of "
        f"{result['steps']} updates; trained for {result['seconds']:.0f} s"
    )
