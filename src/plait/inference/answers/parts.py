"""Split files into parts of some thousand rows, and predict them one by one.

Each part is written to one file, whose name has the file number and the first row. A part that is
predicted again gives the same file.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from plait.data import RecordFile, Records, open_source, would_find
from plait.data import find_files as find_data_files
from plait.data.storage import disk_full_told
from plait.errors import DataError, UsageError
from plait.inference.answers.columns import rename_taken
from plait.inference.answers.formats import FORMATS, choose_separated
from plait.inference.answers.stream import CHUNK, answer_records, choose_columns, count_empty

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence
    from pathlib import Path

    from plait.inference.answers.columns import AnswerColumns
    from plait.inference.predictor import Answerer

PART_ROWS = 8 * CHUNK
"""Rows per part: what is lost with a worker, and what a worker has in memory."""

FILE, ROW = "input_file", "input_row"
"""Columns with the name of the input file, and the row's number in it from 0."""


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive rows of one of the files."""

    file: int
    """Number of the file, from 0."""
    start: int
    num_rows: int
    is_last: bool
    """Whether it is the last part of the file."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to predict, and how and where to write it."""

    files: tuple[Path, ...]
    """Absolute paths."""
    names: tuple[str, ...]
    """Paths as they were found, for the column input_file."""
    columns: tuple[AnswerColumns, ...]
    form: str
    """Format of the parts, which is also the ending of their names."""
    out: Path
    part_rows: int = PART_ROWS
    separator: str | None = None
    quoting: bool = True
    """Both as in a recipe's file."""
    skip_empty: bool = False
    """Whether rows without a text get empty predictions; otherwise they are errors."""

    def place(self, part: Part) -> Path:
        """Return the path of a part."""
        return self.out / _name_part(part.file, part.start, self.form)


def _name_part(file: int, start: int, form: str) -> str:
    return f"part-{file:05}-{start:012}.{form}"


def find_files(pattern: str) -> tuple[Path, ...]:
    """Return the files that match a pattern, sorted by name, as in a recipe."""
    try:
        return tuple(find_data_files(pattern, None).values())
    except DataError as error:
        message = f"no file matches {pattern}; an example of a pattern is 'rows/*.parquet'"
        raise UsageError(message) from error


def refuse_own_answers(
    pattern: str,
    files: Sequence[Path],
    out: Path,
    form: str | None,
    *,
    separator: str | None = None,
) -> None:
    """Raise an error if the pattern would match the parts in the output folder."""
    if would_find(pattern, out / _name_part(0, 0, form or _choose_form(files[0], separator))):
        raise UsageError(
            f"{pattern} would match the predictions in {out} as well; choose a folder that the "
            "pattern does not match"
        )


def make_plan(
    model: Answerer,
    files: Sequence[Path],
    out: Path,
    *,
    tasks: Sequence[str],
    text: Sequence[str] | None = None,
    form: str | None = None,
    probabilities: bool = False,
    threshold: Mapping[str, float] | None = None,
    part_rows: int = PART_ROWS,
    separator: str | None = None,
    quoting: bool = True,
    skip_empty: bool = False,
) -> Plan:
    """Return the plan for files with the same columns.

    By default, parts have the format of the files; files separated by tabs give TSV. JSON objects
    may have different keys, so their predictions are always JSON lines. `separator` and `quoting`
    are as in a recipe's file.
    """
    forms = {path: _find_form(path) for path in files}
    first = files[0]

    def read_names(path: Path) -> Sequence[str]:
        return open_source(path, separator=separator, quoting=quoting).names()

    names = read_names(first)
    for path in files[1:]:
        if forms[path] != forms[first]:
            raise UsageError(f"{path} and {first} have different formats; predict them separately")
        if forms[path] != "jsonl" and read_names(path) != names:
            raise DataError(f"the columns differ from those of {first}", path=path)
    if forms[first] == "jsonl" and form not in (None, "jsonl"):
        raise UsageError("JSON rows have no fixed columns: set the output format to jsonl")
    if form == "words":
        raise UsageError("parts are csv, tsv, jsonl or parquet, not words")
    for name in (FILE, ROW):
        if name in names:
            raise DataError(
                f"has a column {name!r}, a name that is needed for the origin of the rows; rename "
                "the column",
                path=first,
            )
    chosen = choose_columns(
        model, tasks, names, text=text, probabilities=probabilities, threshold=threshold
    )
    columns = rename_taken(chosen, [FILE, ROW, *names])
    absolute = tuple(path.absolute() for path in files)
    found = tuple(path.as_posix() for path in files)
    return Plan(
        absolute,
        found,
        tuple(columns),
        form or _choose_form(first, separator),
        out,
        part_rows,
        separator=separator,
        quoting=quoting,
        skip_empty=skip_empty,
    )


def _find_form(path: Path) -> str:
    endings = [ending for ending in map(str.lower, path.suffixes) if ending not in (".gz", ".xz")]
    form = {".ndjson": "jsonl"}.get(endings[-1], endings[-1][1:]) if endings else ""
    return form if form in ("tsv", "jsonl", "parquet") else "csv"


def _choose_form(path: Path, separator: str | None) -> str:
    """Return the format of the parts for a file."""
    form = _find_form(path)
    return choose_separated(open_source(path, separator=separator)) if form == "csv" else form


def read_parts(plan: Plan, file: int, done: Container[int] = ()) -> Iterator[tuple[Part, Records]]:
    """Read the parts of a file, except those whose first rows are in `done`."""
    texts = [name for column in plan.columns for name in column.text]
    found = RecordFile(
        plan.files[file],
        texts,
        separator=plan.separator,
        quoting=plan.quoting,
        taken=(FILE, ROW, *(column.name for column in plan.columns)),
        keep_empty=plan.skip_empty,
    )
    slices = found.slices(plan.part_rows)
    for records, is_last in _read_ahead(slices):
        start = int(records.numbers[0])
        if start not in done:
            key = {
                FILE: pa.array([plan.names[file]] * len(records), pa.string()),
                ROW: pa.array(records.numbers, pa.int64()),
            }
            yield Part(file, start, len(records), is_last), replace(records, first=key)


def _read_ahead(slices: Iterator[Records]) -> Iterator[tuple[Records, bool]]:
    """Yield each slice, and whether it is the last one."""
    before = next(slices, None)
    while before is not None:
        after = next(slices, None)
        yield before, after is None
        before = after


def answer_part(model: Answerer, plan: Plan, part: Part, records: Records) -> dict[str, Any]:
    """Predict a part into its file, completely or not at all; return its manifest entry."""
    place = plan.place(part)
    is_struct = pa.types.is_struct(records.whole.type)
    own = [(field.name, field.type) for field in records.whole.type] if is_struct else []
    keys = [(name, array.type) for name, array in records.first.items()]
    written = FORMATS[plan.form](pa.schema([*keys, *own]), plan.columns)
    review = {column.task: 0 for column in plan.columns if column.threshold is not None}
    num_empty = 0
    # Two workers may write the same part, if one of them was wrongly considered lost.
    temporary = place.with_name(f".{place.name}.{uuid.uuid4().hex[:12]}.tmp")
    slices = (records.cut(at, at + CHUNK) for at in range(0, len(records), CHUNK))
    try:
        with disk_full_told(place), temporary.open("wb") as file:
            file.write(written.head())
            for some, answers in answer_records(model, plan.columns, slices):
                file.write(written.encode(some, answers))
                num_empty += count_empty(answers)
                for column in plan.columns:
                    if column.task in review:
                        review[column.task] += sum(map(column.is_unsure, answers[column.task]))
        written.finish(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)
    noted = {"part": place.name, "file": part.file, "start": part.start, "rows": part.num_rows}
    return {**noted, "is_last": part.is_last, "review": review, "empty": num_empty}


# --- sending rows to another process -----------------------------------------------------


def pack_records(records: Records) -> bytes:
    """Serialise rows."""
    columns = {
        "numbers": pa.array(records.numbers, pa.int64()),
        "whole": records.whole,
        **{f"first {name}": array for name, array in records.first.items()},
        **{f"text {name}": array for name, array in records.texts.items()},
    }
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue())


def unpack_records(packed: bytes) -> Records:
    """Read them back."""
    with pa.ipc.open_stream(packed) as stream:
        batch = stream.read_next_batch()
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    named = {
        kind: {n.partition(" ")[2]: a for n, a in columns.items() if n.startswith(f"{kind} ")}
        for kind in ("first", "text")
    }
    numbers = columns["numbers"].to_numpy()
    return Records(numbers, columns["whole"], named["text"], named["first"])
