"""`plait evaluate`: score a run on a split."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from plait.cli.train import DataOption

if TYPE_CHECKING:
    from torch import Tensor

    from plait.cli.display import Display
    from plait.inference.predictor import Answerer
    from plait.inference.scoring import Scores
    from plait.tasks import TaskScores

SplitName = Literal["dev", "train", "test"]

RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder of a run, or of an ensemble.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", metavar="DEVICE", help="auto, cpu, cuda, cuda:1 ...")
]
SplitOption = Annotated[SplitName, typer.Option("--split", help="Which files.")]
TasksOption = Annotated[
    list[str] | None,
    typer.Option("--task", metavar="TASK", help="Only this task; may be repeated."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
Precision = Literal["auto", "run", "fp32", "bf16", "int8"]
PrecisionOption = Annotated[
    Precision,
    typer.Option(
        "--precision",
        help="auto is the fastest here, run what training takes, fp32 exact; int8 for CPUs.",
    ),
]

MOST_COLUMNS = 10
"""Classes up to which the table shows what was taken for what; JSON has it for any number."""


def evaluate(
    run: RunArgument,
    split: SplitOption = "dev",
    data: DataOption = None,
    task: TasksOption = None,
    without_implied: Annotated[
        bool,
        typer.Option(
            "--without-implied",
            help="Score pairs also without those that follow from training pairs.",
        ),
    ] = False,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "run",
) -> None:
    """Score a run on its dev files, or others.

    Classes get accuracy, macro precision, recall and F1, and who was taken for whom; labels get
    micro and macro F1, and each label's; scores get Pearson and Spearman. With --data, files of
    the same names in another folder are scored instead.

    With --without-implied, yes-or-no pairs are scored a second time without those whose texts
    training pairs labelled yes link, over any number of steps: what is left must be understood.
    """
    from plait.cli.display import Display
    from plait.errors import UsageError

    if without_implied and split == "train":
        raise UsageError("--without-implied leaves no training pair; score dev or test with it")
    rest: dict[str, Tensor] = {}
    with Display() as display:
        predictor = load_watched(run, device, display, precision=precision)
        check_labelled(predictor, split, data, task)
        datasets = predictor.load_split(split, data=data, tasks=task, progress=display.reading)
        if without_implied:
            rest = predictor.find_rest(datasets, data=data, progress=display.reading)
        scores, without = predictor.score_with_rest(datasets, rest)
    left_out = {name: len(datasets[name]) - len(rows) for name, rows in rest.items()}
    if as_json:
        import json

        values = {"run": str(run), "split": split, **scores.to_json()}
        if without_implied:
            values["without_implied"] = {"left_out": left_out, **without.to_json()}
        typer.echo(json.dumps(values, indent=1, allow_nan=False))
        return
    show_scores(scores, split)
    if without_implied:
        _show_rest(scores, without, left_out, predictor)


def load_watched(
    run: Path,
    device: str,
    display: Display,
    doing: str = "scoring",
    *,
    precision: Precision = "run",
) -> Answerer:
    """Load a run that shows how far it is in what it is doing."""
    display.begin(f"loading {run}")
    from plait.inference.ensemble import load

    note_unfinished(run, display)

    def progress(task: str, done: int, total: int) -> None:
        display.work(f"{doing} {task}", done, total)

    return load(run, device=device, precision=precision).watched(progress)


def note_unfinished(run: Path, display: Display) -> None:
    """Say of a run that trains or was stopped that its model is not its last."""
    from plait.inference.folders import RunFolder

    folder = RunFolder(run)
    if folder.checkpoint.exists() and folder.weights.exists() and not folder.scores.exists():
        display.note(f"{run} is not finished: this is its best model so far")


def check_new_file(path: Path, option: str) -> None:
    """Refuse a file that cannot be written anew before anything slow begins."""
    from plait.errors import UsageError

    if path.exists():
        raise UsageError(f"{path} exists already and is not overwritten; name another {option}")
    if not path.parent.is_dir():
        raise UsageError(f"there is no folder {path.parent} for {option} {path}")


def require_writable(folder: Path, what: str) -> None:
    """Refuse a folder that this user may not write into before anything slow begins."""
    from plait.errors import RunError

    if folder.is_dir() and not os.access(folder, os.W_OK):
        raise RunError(f"{folder} cannot be written; name another file for {what} with --out")


def check_labelled(
    predictor: Answerer, split: SplitName, data: str | None, tasks: list[str] | None
) -> None:
    """Refuse a split without files or labels before anything slow begins."""
    from plait.data import find_files, find_root, open_source
    from plait.errors import UsageError

    config = predictor.config
    root = find_root(config.data, data)
    chosen = {name: config.tasks[name] for name in tasks or config.tasks if predictor.task(name)}
    files = [
        (name, task, file, path)
        for name, task in chosen.items()
        for file in getattr(task, split)
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
                f"{split}; `plait submit` writes answers for files without labels"
            )


def show_scores(scores: Scores, split: str) -> None:
    """Print every task's figures and what they come to."""
    from plait.cli.display import figure, make_console, print_table

    console = make_console()
    for name, task in scores.tasks.items():
        console.print(f"{name}, {task.num_examples} {split} rows", style="bold")
        console.print("  ".join(f"{m} {figure(v)}" for m, v in task.metrics.items()))
        if task.per_class:
            print_table(console, _class_rows(task))
        console.print()
    summary = scores.summary
    console.print(
        f"overall {figure(summary['overall'])}, mean {figure(summary['mean'])}, "
        f"sum {summary['sum']:.3f}"
    )


def _show_rest(
    scores: Scores, without: Scores, left_out: dict[str, int], predictor: Answerer
) -> None:
    """Print the figures of pairs with and without those that follow from training."""
    from plait.cli.display import figure, make_console, print_table

    console = make_console()
    console.print("\nwithout pairs that follow from training pairs", style="bold")
    rows = [["task", "rows", "left out", "figure", "of all", "of the rest"]]
    for name, count in left_out.items():
        total = scores.tasks[name].num_examples
        figures = (figure(s.primary[name]) for s in (scores, without))
        rows.append([name, f"{total:,}", f"{count:,}", predictor.tasks[name].metric, *figures])
    print_table(console, rows)
    summary = without.summary
    console.print(f"overall {figure(summary['overall'])} with the rest for all")


def _class_rows(task: TaskScores) -> list[list[str]]:
    """Write each class's figures, and how many of its rows were taken for each class."""
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
