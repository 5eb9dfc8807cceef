"""`plait submit`: a run's answers in the course's prediction files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from plait.cli.evaluate import RunArgument
from plait.cli.train import DataOption

SPLITS: tuple[Literal["dev"], Literal["test"]] = ("dev", "test")


def submit(
    run: RunArgument,
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Folder for the prediction files.")
    ] = Path("predictions"),
    data: DataOption = None,
    split: Annotated[
        Literal["dev", "test"] | None,
        typer.Option("--split", help="Which files; both if left out."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1 ...")] = "auto",
) -> None:
    """Write one file per task and split: an id and an answer a line, every row answered.

    A task's file is NAME-SPLIT-output.csv, its columns id and the recipe's submit_column.
    """
    import csv

    from plait.predict import Predictor
    from plait.training.checkpoint import atomic_path

    predictor = Predictor.load(run, device=device)
    out.mkdir(parents=True, exist_ok=True)
    for name in (split,) if split else SPLITS:
        for task, dataset in predictor.load_split(name, data=data, labelled=False).items():
            settings = predictor.config.tasks[task]
            path = out / f"{settings.submit_name or task}-{name}-output.csv"
            answers = predictor.scorer.answer(task, dataset)
            with atomic_path(path) as temporary, temporary.open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(["id", settings.submit_column or f"Predicted_{task}"])
                for row_id, answer in zip(dataset.ids, answers, strict=True):
                    value = predictor.describe(task, answer).value
                    writer.writerow([row_id, value if isinstance(value, int) else f"{value:.4f}"])
            typer.echo(f"{path}: {len(dataset)} answers")
