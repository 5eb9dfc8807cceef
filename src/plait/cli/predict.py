"""`plait predict`: answers for texts given as arguments, on standard input or in a file."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from plait.cli.evaluate import DeviceOption, PrecisionOption, RunArgument, note_unfinished
from plait.cli.folder import FolderRequest, is_pattern, predict_folder
from plait.cli.jobs import AddressOption, CpusOption, EngineOption, GpusOption, make_engine
from plait.cli.texts import (
    QuotingOption,
    ResumeOption,
    SeparatorOption,
    check_reading,
    check_texts,
    from_arguments,
    from_lines,
    slice_texts,
)
from plait.cli.train import DataOption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from plait.cli.display import Display
    from plait.data import Records
    from plait.inference.answers.formats import Format
    from plait.inference.predictor import Answerer

Form = Literal["words", "csv", "tsv", "jsonl", "parquet"]


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
            "--input",
            metavar="FILE",
            help="CSV, TSV, JSONL or Parquet, plain or .gz/.xz; or a pattern: 'rows/*.csv'.",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="NAME",
            help="Text column of FILE, twice for pairs; the task's own unless set.",
        ),
    ] = None,
    separator: SeparatorOption = None,
    quoting: QuotingOption = True,
    skip_empty: Annotated[
        bool,
        typer.Option("--skip-empty", help="Write rows without a text, too, with empty answers."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="A new file for answers: .csv, .tsv, .jsonl or .parquet; a pattern's: a folder.",
        ),
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option(
            "--format",
            help="By --output's ending; else words for arguments, TSV where FILE has tabs, or CSV.",
        ),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write every class's probability, too.")
    ] = False,
    accuracy: Annotated[
        float | None,
        typer.Option(
            "--accuracy",
            metavar="PART",
            help="Hold back answers so that the others are this accurate on dev: 0.95.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            "--threshold", metavar="P", help="Hold back answers less confident than this: 0.8."
        ),
    ] = None,
    review: Annotated[
        Path | None,
        typer.Option(
            "--review", metavar="FILE", help="A second new file, for rows held back alone."
        ),
    ] = None,
    resume: ResumeOption = False,
    data: DataOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    engine: EngineOption = "local",
    address: AddressOption = None,
    cpus: CpusOption = None,
    gpus: GpusOption = None,
) -> None:
    """Answer texts with a trained run.

    Without texts and --input, lines are read from standard input; for a task on pairs the two
    texts stand on one line with a tab between them.

    A file may be of any size: it is read and answered piece by piece, in its order. Its columns
    are kept, and each task's are added. What was stopped goes on with --resume.

    With --accuracy or --threshold, answers that are not sure enough are marked for review.

    Of a pattern, or with --engine ray, --output is a folder of parts, whose rows say which file
    and row they answer; _manifest.jsonl there says what is done. On a Ray cluster, parts are
    answered by all its nodes, which share the run, the files and the folder.
    """
    from plait.cli.display import Display

    workers = make_engine(engine, address, cpus, gpus)
    if workers.is_ray or is_pattern(input_):
        asked = FolderRequest(
            run=run,
            pattern=input_,
            output=output,
            engine=workers,
            texts=texts,
            tasks=task,
            column=column,
            separator=check_reading(input_, separator, quoting=quoting),
            quoting=quoting,
            skip_empty=skip_empty,
            form=form,
            probabilities=probabilities,
            accuracy=accuracy,
            threshold=threshold,
            review=review,
            data=data,
            device=device,
            precision=precision,
            resume=resume,
        )
        predict_folder(asked)
        return
    _check_words(texts, input_, column, output, form)
    separator = check_reading(input_, separator, quoting=quoting)
    _check_options(input_, output, accuracy, threshold, review, data, resume=resume)
    with Display() as display:
        if resume and output is not None and is_finished(output):
            display.note(f"{output} is finished already")
            return
        display.begin(f"loading {run}")
        from plait.data import open_source
        from plait.inference.answers.stream import answer_file, choose_tasks
        from plait.inference.ensemble import load

        note_unfinished(run, display)
        model = load(run, device=device, precision=precision)
        # Two texts may be a pair, or one text each.
        num_texts = len(column) if column else 1 if texts and len(texts) == 1 else None
        here: Sequence[str] = ()
        if input_ is not None and not (task or column):
            here = open_source(input_, separator=separator, quoting=quoting).names()
        names = choose_tasks(model, task, num_texts, here)
        least = choose_thresholds(model, names, accuracy, threshold, data, display)
        if input_ is None or output is None:
            rows = _Rows(texts, input_, column, separator, quoting, skip_empty)
            _answer_at_once(model, names, rows, output, form, probabilities, least, display)
            return
        done = answer_file(
            model,
            input_,
            output,
            tasks=names,
            text=column,
            form=form,
            probabilities=probabilities,
            threshold=least,
            review=review,
            separator=separator,
            quoting=quoting,
            skip_empty=skip_empty,
            resume=resume,
            command="the same command and --resume",
            reading=display.reading,
            progress=display.work,
        )
        for name, count in done.num_review.items():
            display.note(f"{name}: {count:,} of {done.num_rows:,} rows are for review")
        note_empty(display, done.num_empty, done.num_rows)
        num_answered = done.num_rows - done.num_empty
        answered = "1 row is" if num_answered == 1 else f"{num_answered:,} rows are"
        display.note(f"{answered} answered in {output}")


# --- what goes together ------------------------------------------------------------------


def _check_words(
    texts: list[str] | None,
    input_: Path | None,
    column: list[str] | None,
    output: Path | None,
    form: Form | None,
) -> None:
    """Refuse what does not go together before anything slow begins."""
    from plait.errors import UsageError

    check_texts(texts, input_, column)
    if input_ is not None and input_.is_dir():
        raise UsageError(f"{input_} is a folder: name its files, such as --input '{input_}/*.csv'")
    if output is not None and form is None:
        from plait.inference.answers.formats import choose_format

        choose_format(output)
    if form == "parquet" and output is None:
        raise UsageError("Parquet is nothing for a terminal: name a file with --output")
    if output is not None and not output.parent.is_dir():
        raise UsageError(f"there is no folder {output.parent} for --output {output}")


def _check_options(
    input_: Path | None,
    output: Path | None,
    accuracy: float | None,
    threshold: float | None,
    review: Path | None,
    data: str | None,
    *,
    resume: bool,
) -> None:
    from plait.errors import UsageError

    if output is not None and output.exists() and not resume:
        raise UsageError(f"{output} exists already and is not overwritten; name another --output")
    if resume and (input_ is None or output is None):
        raise UsageError("--resume goes on with a file: give the same --input and --output")
    check_holding_back(accuracy, threshold, data)
    if review is None:
        return
    if input_ is None or output is None:
        raise UsageError("--review goes with --input and --output")
    if accuracy is None and threshold is None:
        raise UsageError("--review needs --accuracy or --threshold to hold answers back")


def check_holding_back(accuracy: float | None, threshold: float | None, data: str | None) -> None:
    """Refuse options of holding answers back that do not go together."""
    from plait.errors import UsageError

    if accuracy is not None and threshold is not None:
        raise UsageError("give --accuracy, which chooses a threshold, or --threshold, not both")
    if data is not None and accuracy is None:
        raise UsageError("--data is where --accuracy finds the dev files; the texts are --input's")


def is_finished(output: Path) -> bool:
    """Say whether a file is whole, and nothing is left to go on with."""
    from plait.inference.answers.journal import journal_place

    return output.exists() and not journal_place(output).exists()


def choose_thresholds(
    model: Answerer,
    names: list[str],
    accuracy: float | None,
    threshold: float | None,
    data: str | None,
    display: Display,
) -> dict[str, float] | None:
    """Return how sure each task must be; on dev, where an accuracy is wanted."""
    if accuracy is None:
        return None if threshold is None else dict.fromkeys(names, threshold)
    found = {}
    watched = model.watched(display.scoring)
    for name in names:
        chosen = watched.choose_threshold(name, accuracy, data=data)
        found[name] = chosen.value
        display.note(
            f"{name}: answers at least {chosen.value:.4f} sure are given, which are "
            f"{chosen.share:.0%} of {chosen.num_rows:,} dev rows, {chosen.accuracy:.1%} of them "
            f"right (at least {chosen.bound:.1%}, with a certainty of 95%)"
        )
    return found


def note_empty(display: Display, num_empty: int, num_rows: int) -> None:
    """Tell of rows that have empty answers."""
    if num_empty:
        lack = "lacks a text and is" if num_empty == 1 else "lack a text and are"
        display.note(f"{num_empty:,} of {num_rows:,} rows {lack} left unanswered")


# --- arguments, lines, and what goes to a terminal ---------------------------------------


class _Rows(NamedTuple):
    """Where texts come from: arguments, a file, or else standard input."""

    texts: list[str] | None
    path: Path | None
    column: list[str] | None
    separator: str | None = None
    quoting: bool = True
    skip_empty: bool = False


def _answer_at_once(
    model: Answerer,
    names: list[str],
    rows: _Rows,
    output: Path | None,
    form: Form | None,
    probabilities: bool,
    threshold: dict[str, float] | None,
    display: Display,
) -> None:
    """Answer what nobody can go on with once it is stopped."""
    from plait.data import open_source, text_schema
    from plait.inference.answers.columns import rename_taken
    from plait.inference.answers.formats import FORMATS, choose_format, choose_separated
    from plait.inference.answers.journal import refuse_leftovers
    from plait.inference.answers.stream import (
        CHUNK,
        answer_records,
        choose_columns,
        count_empty,
        open_records,
    )

    if output is not None:
        refuse_leftovers(output)
    here: Sequence[str] = ()
    default = "words" if rows.texts else "csv"
    if rows.path is not None:
        source = open_source(rows.path, separator=rows.separator, quoting=rows.quoting)
        here, default = source.names(), choose_separated(source)
    columns = choose_columns(
        model, names, here, text=rows.column, probabilities=probabilities, threshold=threshold
    )
    total = 0
    slices: Iterable[Records]
    if rows.path is not None:
        file = open_records(
            model,
            rows.path,
            columns,
            separator=rows.separator,
            quoting=rows.quoting,
            skip_empty=rows.skip_empty,
        )
        survey = file.survey(display.reading)
        schema, total, slices = survey.schema, survey.num_rows, file.slices(CHUNK)
    else:
        text = columns[0].text
        if rows.texts:
            given = from_arguments(rows.texts, len(text), names, skip_empty=rows.skip_empty)
            lines = iter(given)
        else:
            lines = from_lines(sys.stdin.buffer, len(text), skip_empty=rows.skip_empty)
        schema, slices = text_schema(["id", *text]), slice_texts(lines, text, CHUNK)
    columns = rename_taken(columns, schema.names)
    shape = form or (choose_format(output) if output else default)
    written = FORMATS[shape](schema, columns)
    watched = output is not None or not (rows.texts or sys.stdout.isatty())
    if not watched:
        display.close()  # the answers themselves show how far it is
    answered = answer_records(
        model, columns, slices, total=total, progress=display.work if watched else None
    )
    num_rows = num_empty = 0
    with _open(output, shape, written) as write:
        write(written.head())
        for records, answers in answered:
            write(written.encode(records, answers))
            num_rows, num_empty = num_rows + len(records), num_empty + count_empty(answers)
    note_empty(display, num_empty, num_rows)


def _write_bytes(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@contextmanager
def _open(output: Path | None, shape: str, written: Format) -> Iterator[Callable[[bytes], object]]:
    """Give what writes bytes to standard output, or to a file that is there once it is whole."""
    if output is None:
        # Words are for the terminal, in its encoding; data is UTF-8 here as in every file.
        if shape == "words" or not hasattr(sys.stdout, "buffer"):
            yield lambda data: sys.stdout.write(data.decode("utf-8"))
        else:
            sys.stdout.flush()
            yield _write_bytes
        return
    part = output.with_name(f".{output.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file.write
        written.finish(part, output)
    finally:
        part.unlink(missing_ok=True)
