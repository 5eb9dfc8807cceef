"""`plait predict`: predictions for texts, standard input, files, or a split of the recipe."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from plait.cli.evaluate import load_watched, note_unfinished
from plait.cli.options import (
    DataOption,
    DeviceOption,
    Precision,
    ResumeOption,
    RunArgument,
    SeparatorOption,
    SkipEmptyOption,
    TasksOption,
    TextsArgument,
    resume_command,
)
from plait.cli.texts import check_texts, from_arguments, from_lines, read_separator, slice_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from plait.cli.display import Display
    from plait.data import Dataset, Records
    from plait.inference.answers.formats import Format
    from plait.inference.predictor import Answerer
    from plait.scale import Jobs

Form = Literal["words", "csv", "tsv", "jsonl", "parquet"]


@dataclass(frozen=True, slots=True)
class _Job:
    """The command's options."""

    run: Path
    texts: list[str] | None
    tasks: list[str] | None
    input: Path | None
    column: list[str] | None
    separator: str | None
    skip_empty: bool
    out: Path | None
    form: Form | None
    probabilities: bool
    accuracy: float | None
    threshold: float | None
    review: Path | None
    resume: bool
    data: str | None
    device: str
    precision: Precision | None
    jobs: Jobs

    @property
    def is_pattern(self) -> bool:
        """Whether --input is a pattern for several files."""
        path = self.input
        return path is not None and any(c in str(path) for c in "*?[") and not path.exists()

    @property
    def is_folder(self) -> bool:
        """Whether --out is a folder of parts."""
        return self.jobs.engine.is_ray or self.is_pattern


def predict(
    run: RunArgument,
    texts: TextsArgument = None,
    task: TasksOption = None,
    input_: Annotated[
        Path | None,
        typer.Option(
            "--input",
            metavar="FILE",
            help="CSV, TSV, JSONL or Parquet, plain, .gz or .xz; or a pattern: 'rows/*.csv'.",
        ),
    ] = None,
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="NAME", help="Text column; give it twice for pairs."),
    ] = None,
    separator: SeparatorOption = None,
    skip_empty: SkipEmptyOption = False,
    split: Annotated[
        Literal["dev", "test"] | None,
        typer.Option("--split", help="Predict the files that the recipe names for this split."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="PATH", help="New file; a folder for a pattern or a split."),
    ] = None,
    form: Annotated[
        Form | None, typer.Option("--format", help="Default: by the ending of --out.")
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of every class.")
    ] = False,
    accuracy: Annotated[
        float | None,
        typer.Option(
            "--accuracy",
            metavar="A",
            help="Abstain so that the other predictions reach this accuracy on dev.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", metavar="P", help="Abstain below this probability."),
    ] = None,
    review: Annotated[
        Path | None,
        typer.Option("--review", metavar="FILE", help="Also write the abstained rows to FILE."),
    ] = None,
    resume: ResumeOption = False,
    data: DataOption = None,
    device: DeviceOption = "auto",
    precision: Annotated[
        Precision | None,
        typer.Option(
            "--precision", help="Default: auto (fastest); with --split: run (as trained)."
        ),
    ] = None,
    jobs: Annotated[
        str | None,
        typer.Option("--jobs", metavar="ray[:ADDRESS]", help="Use all nodes of a Ray cluster."),
    ] = None,
) -> None:
    """Predict labels or scores for texts, standard input, files or a split.

    On standard input, each line is one text; the two texts of a pair are separated by a tab. A
    file may be of any size: its columns are kept and those of the tasks are added.

    --split dev or test writes one file per task, DIR/NAME-SPLIT-output.csv, with the recipe's
    column name (submit_column), for example for a leaderboard. Every row gets a prediction.

    For a pattern, and with --jobs ray, --out is a folder of parts; the columns input_file and
    input_row say which row each prediction belongs to.
    """
    from plait.errors import UsageError
    from plait.scale import Jobs
    from plait.scale.cluster import check_engine

    how = Jobs.read(jobs)
    if jobs is not None and (how.at_once or how.workers > 1 or not how.engine.is_ray):
        raise UsageError(f"--jobs {jobs}: predict takes ray, with cpus=N and gpus=N per worker")
    check_engine(how.engine)
    job = _Job(
        run,
        texts,
        task,
        input_,
        column,
        read_separator(separator),
        skip_empty,
        out,
        form,
        probabilities,
        accuracy,
        threshold,
        review,
        resume,
        data,
        device,
        precision,
        how,
    )
    if split:
        _predict_split(job, split)
    elif job.is_folder:
        _predict_folder(job)
    else:
        _predict_file(job)


# --- a split of the recipe ---------------------------------------------------------------


def _predict_split(job: _Job, split: Literal["dev", "test"]) -> None:
    """Write the predictions for a split of the recipe in the tasks' own format."""
    from plait.cli.display import Display
    from plait.errors import UsageError

    if job.texts or job.input is not None:
        raise UsageError("--split takes the recipe's files: leave out the texts and --input")
    if job.out is None:
        raise UsageError("--split needs --out DIR, a folder for the files")
    if job.accuracy is not None or job.threshold is not None:
        raise UsageError("--split gives every row a prediction: leave out --accuracy, --threshold")
    written = []
    with Display() as display:
        predictor = load_watched(
            job.run, job.device, display, "predicting", precision=job.precision or "run"
        )
        datasets = predictor.load_split(
            split, data=job.data, tasks=job.tasks, labelled=False, progress=display.reading
        )
        if not datasets:
            raise UsageError(f"the recipe of {job.run} names no {split} files")
        job.out.mkdir(parents=True, exist_ok=True)
        for task, dataset in datasets.items():
            begin = predictor.config.tasks[task].submit_name or task
            path = job.out / f"{begin}-{split}-output.csv"
            _write_answers(path, predictor, task, dataset)
            written.append(f"{path}: {len(dataset):,} predictions")
    for line in written:
        typer.echo(line)


def _write_answers(path: Path, predictor: Answerer, task: str, dataset: Dataset) -> None:
    """Write the id and the prediction of every row."""
    import csv

    from plait.data.storage import atomic_path

    settings = predictor.config.tasks[task]
    answers = predictor.answer(task, dataset)
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", settings.submit_column or f"Predicted_{task}"])
        for row_id, answer in zip(dataset.ids, answers, strict=True):
            prediction = predictor.describe(task, answer)
            writer.writerow([row_id, settings.kind.spell(prediction, settings.label_separator)])


# --- several files, or a Ray cluster -----------------------------------------------------


def _predict_folder(job: _Job) -> None:
    """Predict all files of a pattern into a folder of parts."""
    from plait.cli.display import Display
    from plait.errors import UsageError, counted

    if job.texts:
        raise UsageError("give texts as arguments or files with --input, not both")
    if job.input is None:
        raise UsageError("--jobs ray predicts files: give a pattern with --input 'rows/*.csv'")
    out = job.out
    if out is None or out.is_file() or out.suffix in (".csv", ".tsv", ".jsonl", ".parquet"):
        raise UsageError("--out must be a folder when --input matches several files")
    if job.review is not None:
        raise UsageError(
            "--review is for one file; the parts have a column, TASK_review, with the same content"
        )
    _check_abstaining(job)
    with Display() as display:
        display.begin(f"loading {job.run}")
        from plait.data import open_source
        from plait.inference.answers.folder import answer_folder
        from plait.inference.answers.parts import find_files, make_plan, refuse_own_answers
        from plait.inference.answers.stream import choose_tasks
        from plait.inference.ensemble import load

        files = find_files(str(job.input))
        refuse_own_answers(str(job.input), files, out, job.form, separator=job.separator)
        # With Ray this model only says which tasks there are; the workers have the GPUs.
        device = "cpu" if job.jobs.engine.is_ray else job.device
        precision = job.precision or "auto"
        note_unfinished(job.run, display)
        model = load(job.run, device=device, precision=precision)
        num_texts = len(job.column) if job.column else None
        here: Sequence[str] = ()
        if not (job.tasks or job.column):  # the other files have the same columns
            here = open_source(files[0], separator=job.separator).names()
        names = choose_tasks(model, job.tasks, num_texts, here)
        plan = make_plan(
            model,
            files,
            out,
            tasks=names,
            text=job.column,
            form=job.form,
            probabilities=job.probabilities,
            threshold=_choose_thresholds(model, names, job, display),
            separator=job.separator,
            skip_empty=job.skip_empty,
        )
        answer = None
        if job.jobs.engine.is_ray:
            from plait.scale.answering import Source, answer_on_ray

            display.begin("starting Ray" if job.jobs.engine.address is None else "joining Ray")
            answer = answer_on_ray(Source(job.run, job.device, precision), job.jobs.engine)
        done = answer_folder(
            model,
            plan,
            answer=answer,
            form={"precision": precision},
            resume=job.resume,
            command=resume_command(),
            progress=display.work,
        )
        of = f" of {counted(len(files), 'file')}"
        _note_done(display, done.num_rows, done.num_empty, done.num_review, out, of)


# --- one file, arguments or standard input -----------------------------------------------


def _predict_file(job: _Job) -> None:
    """Predict one file into another, or print the predictions."""
    from plait.cli.display import Display

    _check(job)
    with Display() as display:
        if job.resume and job.out is not None and is_finished(job.out):
            display.note(f"{job.out} is already finished")
            return
        display.begin(f"loading {job.run}")
        from plait.data import open_source
        from plait.inference.answers.stream import answer_file, choose_tasks
        from plait.inference.ensemble import load

        note_unfinished(job.run, display)
        model = load(job.run, device=job.device, precision=job.precision or "auto")
        # Two texts may be a pair, or two single texts.
        num_texts = len(job.column) if job.column else 1 if len(job.texts or ()) == 1 else None
        here: Sequence[str] = ()
        if job.input is not None and not (job.tasks or job.column):
            here = open_source(job.input, separator=job.separator).names()
        names = choose_tasks(model, job.tasks, num_texts, here)
        least = _choose_thresholds(model, names, job, display)
        if job.input is None or job.out is None:
            _predict_at_once(model, names, job, least, display)
            return
        done = answer_file(
            model,
            job.input,
            job.out,
            tasks=names,
            text=job.column,
            form=job.form,
            probabilities=job.probabilities,
            threshold=least,
            review=job.review,
            separator=job.separator,
            skip_empty=job.skip_empty,
            resume=job.resume,
            command=resume_command(),
            reading=display.reading,
            progress=display.work,
        )
        _note_done(display, done.num_rows, done.num_empty, done.num_review, job.out)


def _check(job: _Job) -> None:
    """Refuse options that cannot be combined, before anything slow begins."""
    from plait.errors import UsageError

    check_texts(job.texts, job.input, job.column, job.separator)
    if job.input is not None and job.input.is_dir():
        raise UsageError(f"{job.input} is a folder: give a pattern, --input '{job.input}/*.csv'")
    if job.out is not None:
        if job.form is None:
            from plait.inference.answers.formats import choose_format

            choose_format(job.out)
        if not job.out.parent.is_dir():
            raise UsageError(f"there is no folder {job.out.parent} for --out {job.out}")
        if job.out.exists() and not job.resume:
            raise UsageError(
                f"{job.out} exists already and is not overwritten; choose another --out"
            )
    elif job.form == "parquet":
        raise UsageError("format parquet cannot be printed: set --out")
    if job.resume and (job.input is None or job.out is None):
        raise UsageError("--resume needs the same --input and --out as before")
    _check_abstaining(job)
    if job.review is not None:
        if job.input is None or job.out is None:
            raise UsageError("--review needs --input and --out")
        if job.accuracy is None and job.threshold is None:
            raise UsageError("--review needs --accuracy or --threshold")


def _check_abstaining(job: _Job) -> None:
    from plait.errors import UsageError

    if job.accuracy is not None and job.threshold is not None:
        raise UsageError("give --accuracy, which chooses a threshold, or --threshold, not both")
    if job.data is not None and job.accuracy is None:
        raise UsageError("--data is for --split and --accuracy; texts come from --input")


def is_finished(out: Path) -> bool:
    """Return whether a file is complete."""
    from plait.inference.answers.journal import journal_place

    return out.exists() and not journal_place(out).exists()


def _choose_thresholds(
    model: Answerer, names: list[str], job: _Job, display: Display
) -> dict[str, float] | None:
    """Return the threshold of each task; chosen on dev for --accuracy."""
    if job.accuracy is None:
        return None if job.threshold is None else dict.fromkeys(names, job.threshold)
    found = {}
    watched = model.watched(display.scoring)
    for name in names:
        chosen = watched.choose_threshold(name, job.accuracy, data=job.data)
        found[name] = chosen.value
        display.note(
            f"{name}: threshold {chosen.value:.4f}: {chosen.share:.0%} of {chosen.num_rows:,} dev "
            f"rows answered, accuracy {chosen.accuracy:.1%} (95% lower bound {chosen.bound:.1%})"
        )
    return found


def _note_done(
    display: Display,
    num_rows: int,
    num_empty: int,
    num_review: dict[str, int],
    out: Path,
    of: str = "",
) -> None:
    """Print how many rows have a prediction, and how many do not."""
    from plait.errors import counted

    for name, count in num_review.items():
        display.note(f"{name}: abstained on {count:,} of {num_rows:,} rows")
    note_empty(display, num_empty, num_rows)
    display.note(f"{counted(num_rows - num_empty, 'row')}{of} predicted in {out}")


def note_empty(display: Display, num_empty: int, num_rows: int) -> None:
    """Print how many rows have no text."""
    if num_empty:
        display.note(f"{num_empty:,} of {num_rows:,} rows have no text and no prediction")


def _predict_at_once(
    model: Answerer,
    names: list[str],
    job: _Job,
    threshold: dict[str, float] | None,
    display: Display,
) -> None:
    """Predict arguments or lines, or a file to standard output; this cannot be resumed."""
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

    if job.out is not None:
        refuse_leftovers(job.out)
    here: Sequence[str] = ()
    default = "words" if job.texts else "csv"
    if job.input is not None:
        source = open_source(job.input, separator=job.separator)
        here, default = source.names(), choose_separated(source)
    columns = choose_columns(
        model, names, here, text=job.column, probabilities=job.probabilities, threshold=threshold
    )
    total = 0
    slices: Iterable[Records]
    schema: Any
    if job.input is not None:
        file = open_records(
            model, job.input, columns, separator=job.separator, skip_empty=job.skip_empty
        )
        survey = file.survey(display.reading)
        schema, total, slices = survey.schema, survey.num_rows, file.slices(CHUNK)
    else:
        text = columns[0].text
        if job.texts:
            given = from_arguments(job.texts, len(text), names, skip_empty=job.skip_empty)
            lines = iter(given)
        else:
            lines = from_lines(sys.stdin.buffer, len(text), skip_empty=job.skip_empty)
        schema, slices = text_schema(["id", *text]), slice_texts(lines, text, CHUNK)
    columns = rename_taken(columns, schema.names)
    shape = job.form or (choose_format(job.out) if job.out else default)
    written = FORMATS[shape](schema, columns)
    watched = job.out is not None or not (job.texts or sys.stdout.isatty())
    if not watched:
        display.close()  # the predictions themselves show the progress
    answered = answer_records(
        model, columns, slices, total=total, progress=display.work if watched else None
    )
    num_rows = num_empty = 0
    with _open(job.out, shape, written) as write:
        write(written.head())
        for records, answers in answered:
            write(written.encode(records, answers))
            num_rows, num_empty = num_rows + len(records), num_empty + count_empty(answers)
    note_empty(display, num_empty, num_rows)


def _write_bytes(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


@contextmanager
def _open(out: Path | None, shape: str, written: Format) -> Iterator[Callable[[bytes], object]]:
    """Yield a function that writes bytes to standard output, or to a file renamed at the end."""
    if out is None:
        # Words are in the terminal's encoding; the other formats are UTF-8, as in files.
        if shape == "words" or not hasattr(sys.stdout, "buffer"):
            yield lambda data: sys.stdout.write(data.decode("utf-8"))
        else:
            sys.stdout.flush()
            yield _write_bytes
        return
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            yield file.write
        written.finish(part, out)
    finally:
        part.unlink(missing_ok=True)
