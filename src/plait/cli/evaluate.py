"""`plait evaluate`: score a run on a split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from plait.cli.train import DataOption

if TYPE_CHECKING:
    from plait.evaluate import Scores

SplitName = Literal["dev", "train", "test"]

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]


def evaluate(
    run: RunArgument,
    split: Annotated[SplitName, typer.Option("--split", help="Which files.")] = "dev",
    data: DataOption = None,
    task: Annotated[
        list[str] | None, typer.Option("--task", help="Only this task; may be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 ...")] = "auto",
) -> None:
    """Score a run: accuracy, macro precision, recall and F1, or Pearson and Spearman.

    With --data, files of the same names in another folder are scored instead.
    """
    from plait.predict import Predictor

    predictor = Predictor.load(run, device=device)
    scores = predictor.evaluate(split, data=data, tasks=task)
    if as_json:
        import json

        values = {"run": str(run), "split": split, **scores.to_json()}
        typer.echo(json.dumps(values, indent=1))
        return
    _show(scores, split)


def _show(scores: Scores, split: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from plait.cli.display import figure

    console = Console(highlight=False, soft_wrap=True)
    for name, task in scores.tasks.items():
        console.print(f"\n{name}, {task.num_examples} {split} rows", style="bold", markup=False)
        console.print("  ".join(f"{m} {figure(v)}" for m, v in task.metrics.items()))
        if not task.per_class or task.confusion is None:
            continue
        table = Table(box=None, pad_edge=False)
        for title in ("class", "precision", "recall", "f1", "rows"):
            table.add_column(title, justify="left" if title == "class" else "right")
        for entry in task.per_class:
            table.add_column(f"-> {entry['label']}", justify="right")
        for entry, row in zip(task.per_class, task.confusion, strict=True):
            figures = (figure(float(entry[key])) for key in ("precision", "recall", "f1"))
            table.add_row(str(entry["label"]), *figures, str(entry["support"]), *map(str, row))
        console.print(table)
    summary = scores.summary
    console.print(
        f"\noverall {figure(summary['overall'])}, mean {figure(summary['mean'])}, "
        f"sum {summary['sum']:.3f}"
    )
