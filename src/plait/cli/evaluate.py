"""`plait evaluate`: score a run on a split, and show its errors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from plait.cli.options import (
    DataOption,
    DeviceOption,
    JsonOption,
    Precision,
    PrecisionOption,
    RunArgument,
    SplitName,
    SplitOption,
    TasksOption,
    check_new_file,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from plait.analysis.mistakes import Mistakes
    from plait.cli.display import Display
    from plait.data import Dataset
    from plait.inference.predictor import Answerer, SingleModel
    from plait.inference.scoring import Scores
    from plait.tasks import TaskScores
    from plait.tasks.metrics import Floats

MOST_COLUMNS = 10
"""Number of classes up to which the table shows the confusion matrix; --json always has it."""


def evaluate(
    run: RunArgument,
    split: SplitOption = "dev",
    data: DataOption = None,
    task: TasksOption = None,
    errors: Annotated[
        int,
        typer.Option("--errors", metavar="N", min=0, help="Show the N worst errors of each task."),
    ] = 0,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="RUN", help="Compare with another run, row by row."),
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write every error with its file and line."),
    ] = None,
    without_implied: Annotated[
        bool,
        typer.Option(
            "--without-implied",
            help="Score pairs again without those that training pairs imply.",
        ),
    ] = False,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "run",
) -> None:
    """Score a run on dev, train or test files, and show what it gets wrong.

    The scores are accuracy and F1 with a confusion matrix for classes, micro and macro F1 for
    labels, and correlations for scores. --data scores files of the same names in another folder.

    --errors shows the most confident errors, the nearest training row of each, and the kinds of
    text with more errors than the rest. --against tests the difference to another run.
    """
    from plait.cli.display import Display
    from plait.errors import UsageError

    if without_implied and split == "train":
        raise UsageError("--without-implied removes every training pair; use it with dev or test")
    if csv is not None:
        check_new_file(csv, "--csv")
    rest: dict[str, Tensor] = {}
    found: dict[str, Mistakes] = {}
    with Display() as display:
        predictor = load_watched(run, device, display, precision=precision)
        check_labelled(predictor, split, data, task)
        other = None
        if against is not None:
            other = load_watched(against, device, display, precision=precision)
            _check_same(predictor, other, task)
        datasets = predictor.load_split(split, data=data, tasks=task, progress=display.reading)
        if without_implied:
            rest = predictor.find_rest(datasets, data=data, progress=display.reading)
        answers = {name: predictor.answer(name, dataset) for name, dataset in datasets.items()}
        scores, without = predictor.score_with_rest(datasets, rest, answers)
        if errors or csv is not None or other is not None:
            for name in datasets:
                found[name] = _find_errors(
                    predictor, other, datasets, answers, name, split, data, errors, display
                )
        if csv is not None:
            _write_csv(csv, found, datasets)
    left_out = {name: len(datasets[name]) - len(rows) for name, rows in rest.items()}
    if as_json:
        import json

        values: dict[str, Any] = {"run": str(run), "split": split, **scores.to_json()}
        values |= {} if against is None else {"against": str(against)}
        if without_implied:
            values["without_implied"] = {"left_out": left_out, **without.to_json()}
        if found:
            values["errors"] = {name: each.to_json() for name, each in found.items()}
        typer.echo(json.dumps(values, indent=1, allow_nan=False, ensure_ascii=False))
        return
    show_scores(scores, split)
    if without_implied:
        _show_rest(scores, without, left_out, predictor)
    from plait.cli.errors import show_errors

    for each in found.values():
        show_errors(each, against, with_rows=errors > 0)
    if csv is not None:
        typer.echo(f"\nEvery error is in {csv}.")


# --- loading -----------------------------------------------------------------------------


def load_watched(
    run: Path,
    device: str,
    display: Display,
    doing: str = "scoring",
    *,
    precision: Precision = "run",
) -> Answerer:
    """Load a run whose progress is shown as `doing`."""
    display.begin(f"loading {run}")
    from plait.inference.ensemble import load

    note_unfinished(run, display)

    def progress(task: str, done: int, total: int) -> None:
        display.work(f"{doing} {task}", done, total)

    return load(run, device=device, precision=precision).watched(progress)


def note_unfinished(run: Path, display: Display) -> None:
    """Note that a run is still training or was stopped."""
    from plait.inference.folders import RunFolder

    folder = RunFolder(run)
    if folder.checkpoint.exists() and folder.weights.exists() and not folder.scores.exists():
        display.note(f"{run} is not finished: this is its best model so far")


def check_labelled(
    predictor: Answerer, split: SplitName, data: str | None, tasks: list[str] | None
) -> None:
    """Refuse a split without files or labels, before anything slow begins."""
    from plait.data import find_files, find_root, open_source
    from plait.errors import UsageError

    config = predictor.config
    root = find_root(config.data, data)
    chosen = {name: config.tasks[name] for name in tasks or config.tasks if predictor.task(name)}
    files = [
        (name, task, file, path)
        for name, task in chosen.items()
        for file in (task.dev_files if split == "dev" else getattr(task, split))
        for path in find_files(file.path, root, config.data.hint).values()
    ]
    if not files:
        names = ", ".join(chosen)
        raise UsageError(f"the recipe of {predictor.folder} names no {split} files for {names}")
    for name, task, file, path in files:
        source = open_source(path, separator=file.separator, quoting=file.quoting)
        label = file.label or task.label
        wanted = label if isinstance(label, tuple) else (label,)
        wanted = () if file.constant is not None else wanted
        if missing := [column for column in wanted if column not in source.names()]:
            raise UsageError(
                f"{path} has no column {missing[0]!r}, so task {name!r} cannot be scored on "
                f"{split}; `plait predict --split {split}` writes predictions without labels"
            )


def _check_same(predictor: Answerer, other: Answerer, tasks: list[str] | None) -> None:
    """Refuse to compare runs whose tasks have other labels or another range."""
    from plait.errors import RunError
    from plait.inference.ensemble import outline

    for name in tasks or predictor.tasks:
        if name not in other.tasks:
            raise RunError(
                f"{other.folder} has no task {name!r}; choose the tasks to compare with --task"
            )
        if outline(predictor.tasks[name].spec) != outline(other.tasks[name].spec):
            raise RunError(
                f"task {name!r} has other labels or another range in {other.folder}, so it cannot "
                "be compared"
            )


# --- errors ------------------------------------------------------------------------------


def _find_errors(
    predictor: Answerer,
    other: Answerer | None,
    datasets: Mapping[str, Dataset],
    answers: Mapping[str, Floats],
    name: str,
    split: SplitName,
    data: str | None,
    num_errors: int,
    display: Display,
) -> Mistakes:
    from plait.analysis.mistakes import find_mistakes
    from plait.cli.errors import MOST_CHANGES

    theirs = None
    if other is not None:
        view = other.read(predictor.config, split, data=data, tasks=[name])
        theirs = other.answer(name, view[name])
    train = datasets[name] if split == "train" else None
    if num_errors and train is None:
        train = _load_train(predictor, name, data, display)
    return find_mistakes(
        predictor,
        name,
        datasets[name],
        answers=answers[name],
        top=num_errors or MOST_CHANGES,
        train=train,
        embedder=_first_member(predictor) if num_errors else None,
        against=theirs,
        progress=display.work,
    )


def _load_train(
    predictor: Answerer, name: str, data: str | None, display: Display
) -> Dataset | None:
    """Read a task's training rows; return None if they are not available."""
    from plait.errors import DataError

    try:
        found = predictor.load_split("train", data=data, tasks=[name], progress=display.reading)
    except DataError as error:
        display.note(f"no nearest training rows are shown: {error}")
        return None
    return found.get(name)


def _first_member(predictor: Answerer) -> SingleModel:
    """Return the model whose vectors measure similarity: an ensemble's first member."""
    from plait.inference.ensemble import Ensemble
    from plait.inference.predictor import SingleModel

    model = predictor.members[0] if isinstance(predictor, Ensemble) else predictor
    assert isinstance(model, SingleModel)
    return model


def _write_csv(path: Path, found: Mapping[str, Mistakes], datasets: Mapping[str, Dataset]) -> None:
    import csv

    from plait.analysis.mistakes import list_mistakes
    from plait.data.storage import atomic_path

    header = "task change file line id text text2 truth answer confidence severity against"
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header.split())
        for name, each in found.items():
            for word, mistake in list_mistakes(each, datasets[name]):
                sure = "" if mistake.confidence is None else f"{mistake.confidence:.4f}"
                first, second = (*mistake.texts, "")[:2]
                place = [mistake.place.path, mistake.place.number, mistake.id]
                judged = [mistake.truth, mistake.answer, sure, f"{mistake.severity:.4f}"]
                cells = [name, word, *place, first, second, *judged, mistake.against or ""]
                writer.writerow(cells)


# --- scores ------------------------------------------------------------------------------


def show_scores(scores: Scores, split: str) -> None:
    """Print every task's scores and their average."""
    from plait.cli.display import figure, make_console, print_table

    console = make_console()
    for name, task in scores.tasks.items():
        console.print(f"{name}, {task.num_examples} {split} rows", style="bold")
        console.print("  ".join(f"{m} {figure(v)}" for m, v in task.metrics.items()))
        if task.per_class:
            print_table(console, _class_rows(task))
        console.print()
    console.print(_write_summary(scores))


def _show_rest(
    scores: Scores, without: Scores, left_out: dict[str, int], predictor: Answerer
) -> None:
    """Print the scores of pairs with and without those that training pairs imply."""
    from plait.cli.display import figure, make_console, print_table

    console = make_console()
    console.print("\nwithout pairs that training pairs imply", style="bold")
    rows = [["task", "rows", "left out", "metric", "all rows", "the rest"]]
    for name, count in left_out.items():
        total = scores.tasks[name].num_examples
        figures = (figure(s.primary[name]) for s in (scores, without))
        rows.append([name, f"{total:,}", f"{count:,}", predictor.tasks[name].metric, *figures])
    print_table(console, rows)
    console.print(f"{_write_summary(without)} without these pairs")


def _write_summary(scores: Scores) -> str:
    """Write the average of the scores, and `overall`, which counts correlations differently."""
    from plait.cli.display import figure
    from plait.cli.train import write_average

    mean, overall = figure(scores.summary["mean"]), figure(scores.summary["overall"])
    more = "" if mean == overall else f"; overall {overall}, with correlations r as (1 + r) / 2"
    return f"{write_average(scores.summary)}{more}"


def _class_rows(task: TaskScores) -> list[list[str]]:
    """Return a table of each class's scores and the confusion matrix."""
    from plait.cli.display import figure, shorten
    from plait.tasks import TASK_KINDS
    from plait.tasks.metrics import name_classes

    confusion = task.confusion
    if confusion is None or len(confusion) > MOST_COLUMNS:
        confusion = [[] for _ in task.per_class]
    labels = [shorten(str(entry["label"]), 32) for entry in task.per_class]
    names, short = name_classes(labels)
    rows = [
        [TASK_KINDS[task.kind].noun, "precision", "recall", "f1", "rows"]
        + [f"as {short[number]}" for number in range(len(confusion[0]))]
    ]
    for name, entry, counts in zip(names, task.per_class, confusion, strict=True):
        figures = [figure(float(entry[key])) for key in ("precision", "recall", "f1")]
        rows.append([name, *figures, str(entry["support"]), *map(str, counts)])
    return rows
