"""Read a data file's columns, and say how to fix a file that cannot be read as it is."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import re
import shlex
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from plait.analysis.draft.columns import COLUMN_WORDS, Column
from plait.data import Columns, open_source
from plait.data.separated import find_separator, refuse_separator
from plait.data.source import written_label
from plait.errors import DataError, UsageError, counted
from plait.tasks.guess import is_number, words_of
from plait.tasks.reading import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from plait.data.source import Source

NUM_ROWS = 2000
"""Rows from which columns are guessed; labels are counted in all rows."""
NUM_BYTES = 1 << 20
"""Bytes from which encoding, separator and header are guessed."""
MISSING = frozenset({"", "nan", "n/a", "null"})
"""Spellings of a missing value, in lower case; 'none' may well be a class."""


@dataclass(frozen=True)
class DataFile:
    """A data file: how it is read, and its columns."""

    path: Path
    columns: dict[str, Column]
    notes: list[str] = field(default_factory=list)
    separator: str | None = None
    """None where plait.data finds it."""
    quoting: bool = True

    def source(self) -> Source:
        """Open the file."""
        return open_source(self.path, separator=self.separator, quoting=self.quoting)

    def count_values(self, column: str) -> Counter[str]:
        """Count every value of a column, as written, in all rows; '' is a missing value."""
        counts: Counter[str] = Counter()
        for chunk in self.source().chunks(Columns((), (column,))):
            values = chunk.columns[0]
            if pa.types.is_nested(values.type):
                values = pa.array(map(written_label, values.to_pylist()), pa.string())
            for entry in pc.value_counts(values).to_pylist():
                counts[_as_written(entry["values"])] += entry["counts"]
        return counts


def read_file(path: Path, separator: str | None = None) -> DataFile:
    """Read a file's columns; raise with the command that fixes the file where there is one."""
    if not path.is_file():
        folder = f"a folder: name its files, such as {path}/*.csv"
        raise UsageError(f"{path} is {folder if path.is_dir() else 'not there'}")
    suffixes = [s.lower() for s in path.suffixes if s.lower() not in (".gz", ".xz")]
    ending = suffixes[-1] if suffixes else ""
    if ending == ".json":
        command = f"jq -c '.[]' {shlex.quote(str(path))} > {shlex.quote(path.stem)}.jsonl"
        raise DataError(f"a JSON file must have an object per line: {command}", path=path)
    if ending == ".parquet":
        return DataFile(path, *_read_columns(open_source(path), path))
    start = _read_start(path)
    _refuse_encoding(start, path)
    if ending in (".jsonl", ".ndjson"):
        return DataFile(path, *_read_columns(open_source(path), path))
    text = start.decode("utf-8", "replace").removeprefix("\ufeff").lstrip("\r\n")
    if separator:
        refuse_separator(separator, path)
    header = re.split(r"[\r\n]", text, maxsplit=1)[0]
    mark = separator or ("\t" if "\t" in header else max(",;|", key=header.count))
    quoting = _find_quoting(text, mark)
    own = find_separator(header.encode(), path, quoting=quoting)
    named = None if own == mark else mark
    columns, notes = _read_columns(open_source(path, separator=named, quoting=quoting), path)
    _refuse_no_header(list(islice(_rows(text, mark, quoting), NUM_ROWS)), mark, path)
    if not quoting:
        notes.insert(0, "quotes are ordinary characters: they do not enclose fields")
    return DataFile(path, columns, notes, named, quoting)


def _read_columns(source: Source, path: Path) -> tuple[dict[str, Column], list[str]]:
    """Read the first rows, one column at a time: JSON objects may lack keys."""
    found, odd = {}, 0
    names = source.names()
    repeated = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    for name in (name for name in names if name not in repeated):
        values: list[str] = []
        odd = 0
        for chunk in source.chunks(Columns((), (name,))):
            values += map(_as_written, chunk.columns[0][: NUM_ROWS - len(values)].to_pylist())
            values += [""] * sum(row.reason == "missing key" for row in chunk.bad)
            odd += sum(row.reason == "wrong number of columns" for row in chunk.bad)
            if len(values) >= NUM_ROWS:
                break
        found[name] = Column(name, tuple(values))
    notes = [f"column {name!r} appears more than once and is ignored" for name in repeated if name]
    if any(column.values for column in found.values()):
        return found, notes
    if odd:
        raise DataError(
            f"none of {counted(odd, 'row')} has as many columns as the header, which has "
            f"{len(names)}; remove lines above the header and quote fields that contain the "
            "separator",
            path=path,
        )
    if any(repeated):
        raise DataError(
            f"column {repeated[0]!r} appears more than once, and no other has rows; rename one",
            path=path,
        )
    if path.name.lower().endswith((".jsonl", ".ndjson")):
        example = '{"text": "Fine!", "label": "good"}'
        raise DataError(f"no line is a JSON object, such as {example}", path=path)
    raise DataError("there are no rows below the header", path=path)


def _as_written(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = (plain_text(value) or "").strip()
    return "" if text.lower() in MISSING else text


def _read_start(path: Path) -> bytes:
    """Return the first whole lines of a file."""
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    opener = openers.get(path.suffix.lower(), open)
    try:
        with cast("IO[bytes]", opener(path, "rb")) as stream:
            start = stream.read(NUM_BYTES)
    except (EOFError, OSError, lzma.LZMAError) as error:
        raise DataError(f"cannot be read: {error}", path=path) from error
    if not start.strip():
        raise DataError("the file is empty", path=path)
    return start if len(start) < NUM_BYTES else start[: start.rfind(b"\n") + 1] or start


def _refuse_encoding(start: bytes, path: Path) -> None:
    """Refuse a file that is not UTF-8, with the command that converts it.

    A few broken rows in UTF-8 are not another encoding: they are skipped as bad rows.
    """
    encoding = "UTF-16" if start.startswith((b"\xff\xfe", b"\xfe\xff")) else "WINDOWS-1252"
    text = start.decode("utf-8", "surrogateescape")
    broken = sum("\udc80" <= c <= "\udcff" for c in text)
    if encoding != "UTF-16" and broken <= sum(c > "\x7f" for c in text) - broken:
        return
    unpack = {".gz": "gzip -dc", ".xz": "xz -dc"}.get(path.suffix.lower())
    name, plain = shlex.quote(str(path)), path.with_suffix("") if unpack else path
    out = shlex.quote(f"{plain.stem}-utf8{plain.suffix}")
    convert = f"iconv -f {encoding} -t UTF-8"
    command = f"{unpack} {name} | {convert} > {out}" if unpack else f"{convert} {name} > {out}"
    raise DataError(f"the file is not UTF-8; convert it: {command}", path=path)


def _rows(text: str, separator: str, quoting: bool) -> Iterator[list[str]]:
    csv.field_size_limit(2**31 - 1)
    lines = io.StringIO(text, newline="")
    rows = csv.reader(
        lines, delimiter=separator, quoting=csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE
    )
    return (row for row in rows if row)


def _find_quoting(text: str, separator: str) -> bool:
    """Return whether quotes enclose fields.

    They do not if taking them so swallows separators or lines that the rows need to have the
    same number of columns.
    """
    if '"' not in text:
        return True
    quoted = (cell for row in _rows(text, separator, True) for cell in row)
    if not any(separator in cell or "\n" in cell for cell in quoted):
        return True
    widths = {len(row) for row in _rows(text, separator, False)}
    return len(widths) > 1 or widths == {1}


def _refuse_no_header(rows: list[list[str]], separator: str, path: Path) -> None:
    """Refuse a file whose first row looks like the rows below it and does not name columns."""
    first, rest = rows[0], rows[1:]
    against = names = 0
    for place, cell in enumerate(map(str.strip, first)):
        below = [row[place].strip() for row in rest if len(row) > place and row[place].strip()]
        if words_of(cell) & COLUMN_WORDS and len(cell.split()) <= 3:
            return
        if not cell or not below:
            continue
        numbers = sum(map(is_number, below)) >= 0.95 * len(below)
        sentences = sum(len(value.split()) for value in below) >= 3 * len(below)
        repeated = cell in below and len(set(below)) <= 0.5 * len(below)
        if (numbers and is_number(cell)) or (sentences and len(cell.split()) >= 4) or repeated:
            against += 1
        elif re.fullmatch(r"[^\W\d][\w.-]*", cell) and (numbers or sentences):
            names += 1
    if against > names:
        columns = separator.join(f"column{i + 1}" for i in range(len(first)))
        command = f"sed -i '1i {columns}' {shlex.quote(str(path))}"
        raise DataError(
            f"line 1 does not name the columns; add a header with names that suit: {command}",
            path=path,
        )
