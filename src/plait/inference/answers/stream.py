"""Predict a file of any size into another file, in chunks and in order."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from plait import __version__
from plait.data import RecordFile, open_source
from plait.data.storage import hash_file
from plait.errors import Interrupted, UsageError
from plait.inference.answers.columns import AnswerColumns, rename_taken
from plait.inference.answers.formats import FORMATS, choose_format
from plait.inference.answers.journal import Journal, journal_place
from plait.inference.thresholds import refuse_threshold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from plait.data import Records
    from plait.inference.answers.formats import Answers
    from plait.inference.predictor import Answerer
    from plait.tasks import Kind

    Progress = Callable[[str, int, int], None]
    """Called with the name of the work, the amount done and the total."""

CHUNK = 2048
"""Rows per chunk: a chunk is in memory at once, and its rows are sorted by length into batches."""


@dataclass(frozen=True, slots=True)
class FileAnswers:
    """A finished file of predictions."""

    path: Path
    num_rows: int
    num_review: dict[str, int]
    """Number of rows marked for review, for each task with a threshold."""
    num_empty: int = 0
    """Rows without a text, which have no prediction."""


def choose_tasks(
    model: Answerer,
    wanted: Sequence[str] | None,
    num_texts: int | None = None,
    columns: Sequence[str] = (),
) -> list[str]:
    """Return the requested tasks, or all suitable ones.

    If the number of texts per row is given, tasks with that number are suitable. Otherwise, if some
    tasks take one text and others two, those are whose text columns are among the `columns`.
    """
    names = list(dict.fromkeys(wanted or model.tasks))
    widths = {name: len(model.task(name).spec.text) for name in names}
    if not wanted and num_texts in widths.values():
        names = [name for name in names if widths[name] == num_texts]
    elif not wanted and len(set(widths.values())) > 1:
        there = set(columns)
        names = [n for n in names if there.issuperset(model.task(n).spec.text)] or names
    if len({widths[name] for name in names}) > 1:
        raise UsageError(
            "name the task with --task, because some tasks take one text and others two: "
            + ", ".join(f"{name} ({width})" for name, width in widths.items())
        )
    return names


def choose_columns(
    model: Answerer,
    tasks: Sequence[str],
    names: Sequence[str],
    *,
    text: Sequence[str] | None = None,
    probabilities: bool = False,
    threshold: float | Mapping[str, float] | None = None,
) -> list[AnswerColumns]:
    """Return the columns that each task reads from a file, and those that are written for it.

    A task reads the columns of its recipe. If the file has none of them, it reads the columns given
    for the first task.
    """
    first = tuple(text or model.task(tasks[0]).spec.text)
    found = []
    for task in tasks:
        spec = model.task(task).spec
        if len(first) != len(spec.text):
            raise UsageError(f"task {task!r} needs {len(spec.text)} text columns, got {len(first)}")
        own = text is None and set(spec.text) <= set(names)
        least = threshold.get(task) if isinstance(threshold, Mapping) else threshold
        if least is not None:
            refuse_threshold(least)
            refuse_abstaining(task, spec.kind)
        texts = spec.text if own else first
        sign = model.config.tasks[task].label_separator
        found.append(AnswerColumns(task, spec, texts, task, probabilities, least, sign))
    return found


def refuse_abstaining(task: str, kind: Kind) -> None:
    """Raise UsageError for a kind of task that cannot abstain by confidence."""
    if not kind.can_abstain:
        raise UsageError(
            f"task {task!r} is of kind {kind.name!r}, and abstaining needs the kind classes or "
            "binary; name the other tasks with --task"
        )


def answer_records(
    model: Answerer,
    columns: Sequence[AnswerColumns],
    slices: Iterable[Records],
    *,
    start: int = 0,
    total: int = 0,
    progress: Progress | None = None,
) -> Iterator[tuple[Records, Answers]]:
    """Predict rows in order; `total` is 0 if unknown.

    Tasks that read the same texts share the encoder's pass if possible. Rows without a text have
    the prediction None. `progress` counts predictions, one per row and task, from row `start` on.
    """
    done = start * len(columns)
    together: tuple[str, ...] = ()

    def show(_: str, now: int, __: int) -> None:
        assert progress is not None
        progress("answering", done + now * len(together), total * len(columns))

    watched = model if progress is None else model.watched(show)
    tasks: dict[tuple[str, ...], list[str]] = {}
    for column in columns:
        tasks.setdefault(column.text, []).append(column.task)
    for records in slices:
        answers: Answers = {}
        for texts, some in tasks.items():
            examples = records.examples(texts)
            full = [i for i, example in enumerate(examples) if all(map(str.strip, example))]
            answers |= {task: [None] * len(records) for task in some}
            if not full:
                done += len(records) * len(some)
                continue
            dataset = model.tokenise([examples[i] for i in full])
            for together in model.share_passes(some):
                for task, rows in watched.answer_together(together, dataset).items():
                    for i, row in zip(full, rows, strict=True):
                        answers[task][i] = model.describe(task, row)
                done += len(records) * len(together)
        yield records, {column.task: answers[column.task] for column in columns}


def count_empty(answers: Answers) -> int:
    """Return how many rows have no prediction because they have no text."""
    return sum(None in row for row in zip(*answers.values(), strict=True))


def answer_file(
    model: Answerer,
    path: Path,
    out: Path,
    *,
    tasks: Sequence[str] | None = None,
    text: Sequence[str] | None = None,
    form: str | None = None,
    probabilities: bool = False,
    threshold: float | Mapping[str, float] | None = None,
    review: Path | None = None,
    separator: str | None = None,
    quoting: bool = True,
    skip_empty: bool = False,
    resume: bool = False,
    command: str = "the same call and resume=True",
    reading: Progress | None = None,
    progress: Progress | None = None,
) -> FileAnswers:
    """Predict every row of a file into another one.

    `form` is the output format; by default it follows from the ending. `separator` and `quoting`
    are as in a recipe's file. With `skip_empty`, rows without a text get empty predictions instead
    of an error. `command` is the command that resumes. `reading` is called with the progress of the
    first pass over the file, `progress` with that of the predictions.
    """
    outputs = [out, *([] if review is None else [review])]
    check_paths(path, outputs, resume=resume)
    if review is not None and threshold is None:
        raise UsageError("a review file needs a threshold or an accuracy")
    forms = [form or choose_format(out), *map(choose_format, outputs[1:])]
    here = open_source(path, separator=separator, quoting=quoting).names()
    names = choose_tasks(model, tasks, len(text) if text else None, here)
    chosen = choose_columns(
        model,
        names,
        here,
        text=text,
        probabilities=probabilities,
        threshold=threshold,
    )
    file = open_records(
        model, path, chosen, separator=separator, quoting=quoting, skip_empty=skip_empty
    )
    survey = file.survey(reading)
    columns = rename_taken(chosen, survey.schema.names)
    formats = {p: FORMATS[f](survey.schema, columns) for p, f in zip(outputs, forms, strict=True)}
    # Defaults are left out, as in journals of versions without these settings.
    read_as = {"separator": separator} if separator is not None else {}
    read_as |= {} if quoting else {"quoting": "no"}
    settings = {
        "input": {"name": path.name, "sha256": hash_file(path), **read_as},
        "model": model.fingerprint(),
        "tasks": {c.task: {"text": c.text, "threshold": c.threshold} for c in columns},
        "probabilities": probabilities,
        "format": forms,
        "review": None if review is None else review.name,
        "chunk": CHUNK,
        "plait": __version__,
    }
    journal = Journal(formats, settings)
    with journal.opened(resume=resume), interruptible(journal, survey.num_rows, command):
        answered = answer_records(
            model,
            columns,
            () if journal.is_written else file.slices(CHUNK, journal.rows),
            start=journal.rows,
            total=survey.num_rows,
            progress=progress,
        )
        for records, answers in answered:
            unsure = {c.task: [c.is_unsure(a) for a in answers[c.task]] for c in columns}
            pieces = {out: formats[out].encode(records, answers)}
            if review is not None:
                rows = np.flatnonzero(np.any(list(unsure.values()), axis=0))
                some = {task: [found[i] for i in rows] for task, found in answers.items()}
                pieces[review] = formats[review].encode(records.take(rows), some)
            journal.write(pieces, len(records), {task: sum(rows) for task, rows in unsure.items()})
        journal.finish()
    counts = {c.task: journal.counts.get(c.task, 0) for c in columns if c.threshold is not None}
    return FileAnswers(out, survey.num_rows, counts, survey.num_empty)


def open_records(
    model: Answerer,
    path: Path,
    columns: Sequence[AnswerColumns],
    *,
    separator: str | None = None,
    quoting: bool = True,
    skip_empty: bool = False,
) -> RecordFile:
    """Open a file to predict; if it has no id column of the recipe, rows are numbered."""
    ids = [model.config.tasks[column.task].id for column in columns]
    texts = [name for column in columns for name in column.text]
    named = ["id", *(name for name in ids if name)]
    return RecordFile(
        path, texts, named, separator=separator, quoting=quoting, keep_empty=skip_empty
    )


def check_paths(path: Path, outputs: Sequence[Path], *, resume: bool) -> None:
    """Raise an error for missing inputs and for outputs that exist or cannot be written."""
    if not path.is_file():
        if path.is_dir():
            raise UsageError(f"{path} is a folder; name one of its files")
        raise UsageError(f"there is no file {path}")
    going_on = resume and journal_place(outputs[0]).exists()
    for i, output in enumerate(outputs):
        if output.resolve() in [path.resolve(), *(o.resolve() for o in outputs[:i])]:
            raise UsageError(f"{output} is named twice; choose a different file for each output")
        if not output.parent.is_dir():
            raise UsageError(f"there is no folder {output.parent} for {output}")
        if output.exists() and not going_on:
            raise UsageError(f"{output} exists already and is not overwritten; choose another file")


@contextmanager
def interruptible(journal: Journal, total: int, command: str) -> Iterator[None]:
    """On Ctrl-C, say how to continue."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped; {journal.saved_rows:,} of {total:,} rows are kept. Continue with: {command}"
        ) from None
