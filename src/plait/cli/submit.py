"""`plait submit`: a run's answers in the course's prediction files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from plait.cli.evaluate import DeviceOption, PrecisionOption, RunArgument, load_watched
from plait.cli.train import DataOption

if TYPE_CHECKING:
    from plait.config import TaskConfig
    from plait.data import Dataset
    from plait.inference.predictor import Answerer

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
    device: DeviceOption = "auto",
    precision: PrecisionOption = "run",
) -> None:
    """Write the answers to dev and test files for submission.

    Every row is answered: a class by its number, labels in words, a score with four decimals.
    There is one file per task and split, NAME-SPLIT-output.csv, its columns id and the recipe's
    submit_column; one that is there already is replaced.
    """
    from plait.cli.display import Display
    from plait.errors import UsageError

    written = []
    with Display() as display:
        predictor = load_watched(run, device, display, "answering", precision=precision)
        splits = {
            name: predictor.load_split(name, data=data, labelled=False, progress=display.reading)
            for name in ((split,) if split else SPLITS)
        }
        if not any(splits.values()):
            raise UsageError(f"the recipe of {run} names no {split or 'dev or test'} files")
        out.mkdir(parents=True, exist_ok=True)
        for name, datasets in splits.items():
            for task, dataset in datasets.items():
                begin = predictor.config.tasks[task].submit_name or task
                path = out / f"{begin}-{name}-output.csv"
                _write_answers(path, predictor, task, dataset)
                written.append(f"{path}: {len(dataset):,} answers")
    for line in written:
        typer.echo(line)


def _write_answers(path: Path, predictor: Answerer, task: str, dataset: Dataset) -> None:
    """Write the answer to every row, by its id."""
    import csv

    from plait.data.storage import atomic_path

    settings = predictor.config.tasks[task]
    answers = predictor.answer(task, dataset)
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", settings.submit_column or f"Predicted_{task}"])
        for row_id, answer in zip(dataset.ids, answers, strict=True):
            value = predictor.describe(task, answer).value
            writer.writerow([row_id, spell_answer(value, settings)])


def spell_answer(value: int | float | tuple[int, ...], task: TaskConfig) -> str:
    """Write an answer as a file of the task would have it."""
    from plait.tasks.metrics import has_numbers

    if isinstance(value, tuple):
        return task.label_separator.join(task.labels[i] for i in value)
    if has_numbers(task.labels):  # a priority from 1 to 5 is no class from 0 to 4
        return task.labels[int(value)]
    return str(value) if task.labels else f"{value:.4f}"
