"""A file of any size becomes a file of answers, a chunk at a time and in its order."""

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
    """Called with what is under way, how much of it is done and how much there is."""

CHUNK = 2048
"""Rows answered at a time: memory does not grow with the input, and rows of like length, which
are answered together, are found among this many."""


@dataclass(frozen=True, slots=True)
class FileAnswers:
    """A finished file of answers."""

    path: Path
    num_rows: int
    num_review: dict[str, int]
    """For each task that may abstain, how many of its answers are for review."""
    num_empty: int = 0
    """Rows that lack a text, and so an answer."""


def choose_tasks(
    model: Answerer,
    wanted: Sequence[str] | None,
    num_texts: int | None = None,
    columns: Sequence[str] = (),
) -> list[str]:
    """Return the tasks asked for, or all that fit.

    Those fit that take so many texts a row, where that is known; else, where some take one text and
    some two, those whose own are among the `columns` of a file.
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
            "say which task with --task, since some take one text and some two: "
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
    """Choose what each task reads of a file with these columns, and what is written of it.

    A task reads the columns of its recipe; where the file has none of them, those of the first
    task, whose texts may be called otherwise.
    """
    first = tuple(text or model.task(tasks[0]).spec.text)
    found = []
    for task in tasks:
        spec = model.task(task).spec
        if len(first) != len(spec.text):
            raise UsageError(f"task {task!r} takes {len(spec.text)} text columns, not {len(first)}")
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
    """Refuse to hold back answers of a kind that is not held back by how sure they are."""
    if not kind.can_abstain:
        raise UsageError(
            f"task {task!r} is of kind {kind.name!r}, and only answers of classes, or of yes and "
            "no, are held back by how sure they are; leave it out by naming the others with --task"
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
    """Answer rows in their order; `total` is 0 where nobody knows it.

    Tasks that read the same texts share the encoder's pass over them where they can. Rows that lack
    one have None for an answer. `progress` counts answers, of which each task has one for each row,
    from row `start` on.
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
    """Return how many rows lack an answer, having no text."""
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
    """Answer every row of a file into another one.

    `form` is the output's format, by its ending unless given; `separator` and `quoting` are as a
    recipe's file has them; with `skip_empty`, rows that lack a text have empty answers, and are no
    error; `command` is how the user would go on; `reading` hears how far the first pass over the
    file is, `progress` how far the answers.
    """
    outputs = [out, *([] if review is None else [review])]
    check_paths(path, outputs, resume=resume)
    if review is not None and threshold is None:
        raise UsageError("a file for review needs a threshold, or an accuracy to choose one by")
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
    # What is left as it is has no name here, as in journals that were begun before it could be set.
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
    """Open a file to be answered; rows that no recipe has a name for are numbered."""
    ids = [model.config.tasks[column.task].id for column in columns]
    texts = [name for column in columns for name in column.text]
    named = ["id", *(name for name in ids if name)]
    return RecordFile(
        path, texts, named, separator=separator, quoting=quoting, keep_empty=skip_empty
    )


def check_paths(path: Path, outputs: Sequence[Path], *, resume: bool) -> None:
    """Refuse files that are not there, and outputs that are or cannot be."""
    if not path.is_file():
        if path.is_dir():
            raise UsageError(f"{path} is a folder; name one of its files")
        raise UsageError(f"there is no file {path}")
    going_on = resume and journal_place(outputs[0]).exists()
    for i, output in enumerate(outputs):
        if output.resolve() in [path.resolve(), *(o.resolve() for o in outputs[:i])]:
            raise UsageError(f"{output} is named twice; what is written is a file of its own")
        if not output.parent.is_dir():
            raise UsageError(f"there is no folder {output.parent} for {output}")
        if output.exists() and not going_on:
            raise UsageError(f"{output} exists already and is not overwritten; name another file")


@contextmanager
def interruptible(journal: Journal, total: int, command: str) -> Iterator[None]:
    """Say how to go on where the user stops it."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"stopped; {journal.saved_rows:,} of {total:,} rows are kept. Go on with: {command}"
        ) from None
