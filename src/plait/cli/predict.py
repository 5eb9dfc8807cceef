"""`plait predict`: answers for texts given as arguments, on standard input or in a file."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from plait.cli.evaluate import DeviceOption, PrecisionOption, RunArgument, load_watched

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO, TextIO

    from plait.cli.display import Display
    from plait.predict import Answerer
    from plait.types import Prediction

CHUNK = 1024
"""Rows answered at a time, so that memory does not grow with the input."""

Format = Literal["words", "csv", "jsonl"]

Row = tuple[str, tuple[str, ...]]
"""A row's id and its texts."""


def predict(
    run: RunArgument,
    texts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TEXT", help="Texts to answer; a task on pairs takes them two by two."
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            "--task", metavar="TASK", help="Task to answer; may be repeated. All that fit, if not."
        ),
    ] = None,
    input_: Annotated[
        Path | None,
        typer.Option(
            "--input", metavar="FILE", help="CSV, TSV, JSONL or Parquet, plain or .gz/.xz."
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME",
            help="Text column of FILE, twice for pairs; the first task's unless set.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", metavar="FILE", help="A new file for answers, .csv or .jsonl."),
    ] = None,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="Words for texts as arguments, else CSV, unless set."),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write every class's probability, too.")
    ] = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
) -> None:
    """Answer texts with a trained run.

    Without texts and --input, lines are read from standard input; for a task on pairs the two
    texts stand on one line with a tab between them.
    """
    from plait.cli.display import Display

    _check_words(texts, input_, column, output)
    shape = _choose_format(form, output, bool(texts))
    with Display() as display:
        predictor = load_watched(run, device, display, precision=precision)
        names = _choose_tasks(predictor, task, len(texts or ()))
        width = len(predictor.tasks[names[0]].spec.text)
        rows: Iterable[Row]
        total = 0
        if texts:
            rows = _from_arguments(texts, width)
        elif input_ is not None:
            total, rows = _from_file(input_, predictor, names[0], column, display)
        else:
            rows = _from_lines(sys.stdin.buffer, width)
        watched = output is not None or not (texts or sys.stdout.isatty())
        if not watched:
            display.close()  # the answers themselves show how far it is
        answers = _answer(predictor, names, rows, total, display if watched else None)
        write = {"words": _write_words, "csv": _write_csv, "jsonl": _write_jsonl}[shape]
        with _open(output) as file:
            write(file, predictor, names, answers, probabilities)


Answer = tuple[str, tuple[str, ...], "dict[str, Prediction]"]
"""A row's id, its texts, and each task's answer."""


def _answer(
    predictor: Answerer, names: list[str], rows: Iterable[Row], total: int, display: Display | None
) -> Iterator[Answer]:
    """Answer rows in their order, a chunk at a time; `total` is 0 where nobody knows it."""
    from itertools import islice

    done = 0  # answers so far: each task has one for each row

    def show(_: str, now: int, __: int) -> None:
        if display is not None:
            display.work("answering", done + now, total * len(names))

    predictor = predictor.watched(show)
    rows = iter(rows)
    while chunk := list(islice(rows, CHUNK)):
        texts = [row[1] for row in chunk]
        answers = {}
        for name in names:
            answers[name] = predictor.predict(name, texts)
            done += len(chunk)
        for i, (row_id, row_texts) in enumerate(chunk):
            yield row_id, row_texts, {name: answers[name][i] for name in names}


# --- what to answer ----------------------------------------------------------------------


def _check_words(
    texts: list[str] | None, input_: Path | None, column: list[str] | None, output: Path | None
) -> None:
    """Refuse what does not go together before anything slow begins."""
    from plait.errors import UsageError

    if texts and input_ is not None:
        raise UsageError("give texts as arguments or a file with --input, not both")
    if column and input_ is None:
        raise UsageError("--column names a column of a file: give the file with --input")
    if input_ is not None and not input_.is_file():
        raise UsageError(
            f"there is no file {input_}; leave out --input to read lines from standard input"
        )
    if output is not None and output.exists():
        raise UsageError(f"{output} exists already and is not overwritten; name another --output")
    if output is not None and not output.parent.is_dir():
        raise UsageError(f"there is no folder {output.parent} for --output {output.name}")
    if not texts and input_ is None and sys.stdin.isatty():
        raise UsageError("give texts as arguments, a file with --input, or lines on standard input")


def _choose_tasks(predictor: Answerer, wanted: list[str] | None, num_texts: int) -> list[str]:
    """Return the tasks asked for, or all that take the same number of texts."""
    from plait.errors import UsageError

    names = list(dict.fromkeys(wanted or predictor.tasks))
    widths = {name: len(predictor.task(name).spec.text) for name in names}
    if wanted is None and num_texts == 1 and 1 in widths.values():
        names = [name for name in names if widths[name] == 1]
    if len({widths[name] for name in names}) > 1:
        raise UsageError(
            "say which task with --task, since some take one text and some two: "
            + ", ".join(f"{name} ({width})" for name, width in widths.items())
        )
    return names


def _from_arguments(texts: list[str], width: int) -> list[Row]:
    from plait.errors import UsageError

    if len(texts) % width:
        raise UsageError(f"this task takes texts two by two, and {len(texts)} were given")
    if not all(text.strip() for text in texts):
        raise UsageError("one of the texts is empty")
    pairs = [tuple(texts[i : i + width]) for i in range(0, len(texts), width)]
    return [(str(i), pair) for i, pair in enumerate(pairs)]


def _from_lines(stream: BinaryIO, width: int) -> Iterator[Row]:
    from plait.errors import DataError

    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError("the text is not UTF-8", path="<stdin>", line=number) from error
        texts = tuple(text.split("\t")) if width == 2 else (text,)
        if len(texts) != width:
            raise DataError(
                f"a pair is two texts with one tab between them, and this line has "
                f"{len(texts) - 1} tabs",
                path="<stdin>",
                line=number,
            )
        if not all(text.strip() for text in texts):
            raise DataError("the text is empty", path="<stdin>", line=number)
        yield str(number - 1), texts


def _from_file(
    path: Path, predictor: Answerer, task: str, columns: list[str] | None, display: Display
) -> tuple[int, Iterator[Row]]:
    """Return how many rows a file has and the rows; a bad one is found before the first answer."""
    from plait.data import read_rows
    from plait.errors import UsageError

    settings = predictor.config.tasks[task]
    names = tuple(columns or settings.text)
    if len(names) != len(settings.text):
        raise UsageError(f"task {task!r} takes {len(settings.text)} text columns, not {len(names)}")
    display.begin(f"checking {path}")
    return sum(1 for _ in read_rows(path, names, settings.id)), read_rows(path, names, settings.id)


# --- how to write it ---------------------------------------------------------------------


def _choose_format(form: Format | None, output: Path | None, as_arguments: bool) -> Format:
    from plait.errors import UsageError

    if form is not None:
        return form
    if output is None:
        return "words" if as_arguments else "csv"
    endings: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl"}
    if output.suffix not in endings:
        raise UsageError(f"--output {output} should end in .csv or .jsonl, or give --format")
    return endings[output.suffix]


def in_words(answer: Prediction) -> str:
    """Write an answer for a reader: its label, or labels, and how sure the model is."""
    if isinstance(answer.value, tuple) and answer.words:
        chances = [answer.probabilities[i] for i in answer.value]
        each = zip(answer.words, chances, strict=True)
        return ", ".join(f"{word} ({chance:.0%} sure)" for word, chance in each)
    sure = "" if answer.confidence is None else f" ({answer.confidence:.0%} sure)"
    return f"{answer.label}{sure}"


@contextmanager
def _open(path: Path | None) -> Iterator[TextIO]:
    if path is None:
        yield sys.stdout
        return
    from plait.training.checkpoint import atomic_path

    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        yield file


def _write_words(
    file: TextIO,
    predictor: Answerer,
    names: list[str],
    answers: Iterable[Answer],
    probabilities: bool,
) -> None:
    for _, texts, row in answers:
        print(" | ".join(texts), file=file)
        for name in names:
            answer = row[name]
            print(f"  {name}: {in_words(answer)}", file=file)
            if probabilities:
                for label, p in zip(
                    predictor.tasks[name].spec.labels, answer.probabilities, strict=True
                ):
                    print(f"    {p:6.1%}  {label}", file=file)


def _write_csv(
    file: TextIO,
    predictor: Answerer,
    names: list[str],
    answers: Iterable[Answer],
    probabilities: bool,
) -> None:
    import csv

    writer = csv.writer(file, lineterminator="\n")
    header = ["id", *predictor.tasks[names[0]].spec.text]
    for name in names:
        labels = predictor.tasks[name].spec.labels
        header += [name, *([f"{name}_label", f"{name}_confidence"] if labels else [])]
        header += [f"{name}_p_{label}" for label in labels if probabilities]
    writer.writerow(header)
    for row_id, texts, row in answers:
        cells: list[Any] = [row_id, *texts]
        for name in names:
            answer = row[name]
            if answer.confidence is None:
                cells.append(f"{answer.value:.4f}")
                continue
            value: Any = answer.value
            label = answer.label
            if isinstance(value, tuple):
                sign = predictor.config.tasks[name].label_separator
                value, label = sign.join(map(str, value)), sign.join(answer.words)
            cells += [value, label, f"{answer.confidence:.4f}"]
            cells += [f"{p:.4f}" for p in answer.probabilities if probabilities]
        writer.writerow(cells)


def _write_jsonl(
    file: TextIO,
    predictor: Answerer,
    names: list[str],
    answers: Iterable[Answer],
    probabilities: bool,
) -> None:
    import json

    for row_id, texts, row in answers:
        line: dict[str, Any] = {"id": row_id, "texts": texts}
        for name in names:
            answer = row[name]
            line[name] = {"value": answer.value}
            if answer.confidence is not None:
                several = isinstance(answer.value, tuple)
                line[name]["label"] = answer.words if several else answer.label
                line[name]["confidence"] = round(answer.confidence, 6)
                if probabilities:
                    labels = predictor.tasks[name].spec.labels
                    line[name]["probabilities"] = dict(
                        zip(labels, (round(p, 6) for p in answer.probabilities), strict=True)
                    )
        print(json.dumps(line, ensure_ascii=False), file=file)
