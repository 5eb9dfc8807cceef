"""A file becomes columns to look at: its encoding, separator, quoting and header are found out.

Reading is plait.data's. What that does not read as it stands, text that is not UTF-8 or has no
header line, is first copied into a form that it does.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import lzma
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from plait.analysis.draft.words import COLUMN_WORDS, find_decimal_comma, is_number, words_of
from plait.data import Columns, open_source
from plait.data.separated import find_separator, refuse_separator
from plait.data.source import written_label
from plait.errors import DataError, UsageError, counted
from plait.tasks.reading import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.data.source import Source

NUM_LOOKED = 2000
"""Rows by which columns are told apart; labels are counted over all rows."""

NUM_SNIFFED = 1 << 20
"""Bytes by which the encoding and the separator are told."""

HOLDS_OBJECTS = "holds objects, which are not read; give what is in them columns of its own"

MISSING = frozenset({"", "nan", "n/a", "null"})
"""Ways to write that a value is not there, in small letters; 'none' may well be a class."""


_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
"""Signs of Thai, Lao, Burmese, Khmer, Japanese and Chinese, which have no spaces between words."""

_DATE = re.compile(r"\d{4}([-/.])\d{1,2}\1\d{1,2}([T ].*)?|\d{1,2}([-/.])\d{1,2}\3\d{2,4}([T ].*)?")


def _count_words(text: str) -> int:
    return max(len(text.split()), len(_UNSPACED.findall(text)) // 2)  # of some two signs each


@dataclass(frozen=True)
class Column:
    """The first values of a column, as written, and what they are like."""

    name: str
    values: tuple[str, ...]
    """Without space around them; empty where missing."""

    @cached_property
    def filled(self) -> list[str]:
        """Values that are there."""
        return [value for value in self.values if value]

    @cached_property
    def distinct(self) -> int:
        """How many different values there are."""
        return len(set(self.filled))

    @cached_property
    def mean_words(self) -> float:
        """Words of a value, on average."""
        return sum(map(_count_words, self.filled)) / max(len(self.filled), 1)

    @cached_property
    def is_number(self) -> bool:
        """Whether nearly all of it is numbers."""
        numbers = sum(map(is_number, self.filled))
        return bool(self.filled) and numbers >= 0.95 * len(self.filled)

    @cached_property
    def is_measured(self) -> bool:
        """Whether it is numbers some of which are no whole ones, as scores mostly are."""
        return self.is_number and not all(
            float(value).is_integer() for value in self.filled if is_number(value)
        )

    @cached_property
    def has_decimal_commas(self) -> bool:
        """Whether it is numbers of which most have a comma, such as 3,7."""
        return bool(self.filled) and find_decimal_comma(Counter(self.filled)) is not None

    @cached_property
    def is_date(self) -> bool:
        """Whether it is dates."""
        return bool(self.filled) and all(map(_DATE.fullmatch, self.filled))

    @cached_property
    def is_object(self) -> bool:
        """Whether it is objects of JSON, or structs of Parquet."""
        return bool(self.filled) and all(v[0] == "{" and v[-1] == "}" for v in self.filled)

    @cached_property
    def is_unique(self) -> bool:
        """Whether every row has a value of its own."""
        return 0 < len(self.values) == self.distinct


@dataclass(frozen=True)
class Reading:
    """How a file wants to be read, where it is not told."""

    separator: str | None = None
    encoding: str | None = None
    header: bool | None = None


@dataclass(frozen=True)
class LookedAt:
    """A data file and what was found out about it."""

    given: Path
    """The user's file."""
    path: Path
    """What is read: the same, or a copy that can be."""
    separator: str | None
    """None where plait.data tells it by itself."""
    quoting: bool
    columns: dict[str, Column]
    notes: list[str] = field(default_factory=list)
    """What had to be done to read it."""

    @property
    def is_mended(self) -> bool:
        """Whether a copy is read."""
        return self.path != self.given

    def source(self) -> Source:
        """Open it."""
        return open_source(self.path, separator=self.separator, quoting=self.quoting)

    def count_values(self, column: str) -> dict[str, int]:
        """Count every value of a column, as written, over all rows."""
        counts: dict[str, int] = {}
        for chunk in self.source().chunks(pick(label=(column,))):
            column_values = chunk.columns[0]
            if pa.types.is_nested(column_values.type):
                column_values = pa.array(map(written_label, column_values.to_pylist()), pa.string())
            for entry in pc.value_counts(column_values).to_pylist():
                value = _as_written(entry["values"])
                counts[value] = counts.get(value, 0) + entry["counts"]
        return counts


def pick(text: tuple[str, ...] = (), label: tuple[str, ...] = (), id: str | None = None) -> Columns:
    """Name columns to read; one of any type is read as a label is."""
    return Columns(text, label, id)


def look_at(path: Path, reading: Reading, scratch: Path) -> LookedAt:
    """Find out how a file is read and what its columns hold; copies go into `scratch`."""
    if not path.is_file():
        # Not left out as an odd file is: somebody mistyped a name.
        folder = f"a folder: name its files, such as {path}/*.csv"
        raise UsageError(f"{path} is {folder if path.is_dir() else 'not there'}")
    kind = _kind_of(path)
    if kind == "parquet":
        columns, notes = _read_columns(open_source(path), path)
        return LookedAt(path, path, None, True, columns, notes)
    sample = _read_start(path)
    if not sample.strip():
        raise DataError("the file is empty", path=path)
    encoding = reading.encoding or _guess_encoding(sample)
    notes = [] if encoding == "utf-8" else [f"read as {encoding}: it is not UTF-8"]
    if encoding != reading.encoding and notes and not encoding.startswith("utf"):
        _, sound = _count_signs(sample)
        if sound:
            notes[0] += (
                f", though {sound:,} of its signs would be: rows of two encodings may be mixed; "
                "look at the texts, or save all of it as UTF-8"
            )
    text = _decode(sample, encoding, path)
    if "\0" in text:
        raise DataError("it is no text file; a spreadsheet is first saved as CSV", path=path)
    if kind == "jsonl":
        copied = path if encoding == "utf-8" else _copy(path, scratch, encoding, "")
        columns, more = _read_columns(open_source(copied), path)
        return LookedAt(path, copied, None, True, columns, notes + more)
    if re.match(r"sep=.\r?\n", text):
        raise DataError("the line is for Excel alone; take it out", path=path, line=1)
    if reading.separator:
        refuse_separator(reading.separator, path)
    separator = reading.separator or _guess_separator(text)
    quoting = _guess_quoting(text, separator)
    if not quoting:
        notes.append("quotes are ordinary characters: they do not enclose fields")
    first = next(_split_rows(text, separator, quoting), [])
    has_header = reading.header
    if has_header is None:
        has_header = _guess_header(list(islice(_split_rows(text, separator, quoting), NUM_LOOKED)))
    line = ""
    if not has_header:
        notes.append("no header line: columns are called column1, column2, ...")
        line = separator.join(f"column{i}" for i in range(1, len(first) + 1)) + "\n"
    copied = _copy(path, scratch, encoding, line) if encoding != "utf-8" or line else path
    header = (line or text.split("\n", 1)[0]).encode(errors="replace")
    told = None if find_separator(header, path, quoting=quoting) == separator else separator
    columns, more = _read_columns(open_source(copied, separator=separator, quoting=quoting), path)
    return LookedAt(path, copied, told, quoting, columns, notes + more)


def _kind_of(path: Path) -> str:
    suffixes = [s.lower() for s in path.suffixes if s.lower() not in (".gz", ".xz")]
    ending = suffixes[-1] if suffixes else ""
    if ending == ".json":
        raise DataError("JSON is read one object a line, from a file named .jsonl", path=path)
    return {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl"}.get(ending, "separated")


def _read_columns(source: Source, given: Path) -> tuple[dict[str, Column], list[str]]:
    """Read the first rows, a column at a time: what it holds decides what it is, not its type.

    `given` is the user's own file, whichever copy of it is read.
    """
    found, notes, odd = {}, [], 0
    names = source.names()
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            if name:
                notes.append(f"column {name!r} appears more than once and is passed over")
            continue
        values: list[str] = []
        odd = 0
        for chunk in source.chunks(pick(label=(name,))):
            values += [
                _as_written(v) for v in chunk.columns[0][: NUM_LOOKED - len(values)].to_pylist()
            ]
            values += [""] * sum(row.reason == "missing key" for row in chunk.bad)
            odd += sum(row.reason == "wrong number of columns" for row in chunk.bad)
            if len(values) >= NUM_LOOKED:
                break
        found[name] = Column(name, tuple(values))
        if found[name].is_object:
            notes.append(f"column {name!r} {HOLDS_OBJECTS}")
    if not any(column.values for column in found.values()):
        if odd:
            raise DataError(
                f"none of {counted(odd, 'row')} has as many columns as the first line, which "
                f"names {len(names)}; take out what stands above their names, and put a text that "
                "has the separator in it in double quotes",
                path=given,
            )
        raise DataError(_why_no_rows(names, _kind_of(given)), path=given)
    return found, notes


def _why_no_rows(names: Sequence[str], kind: str) -> str:
    repeated = next((name for name in names if name and names.count(name) > 1), None)
    if repeated is not None:
        return f"column {repeated!r} appears more than once, and no other has rows; rename one"
    if kind == "jsonl":
        return 'no line is a JSON object, such as {"text": "Fine!", "label": "good"}'
    return "there are no rows" if kind == "parquet" else "there are no rows below the header"


def _as_written(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    text = (plain_text(value) or "").strip()
    return "" if text.lower() in MISSING else text


# --- text --------------------------------------------------------------------------------


def _open(path: Path) -> IO[bytes]:
    ending = path.suffix.lower()
    if ending == ".gz":
        return cast("IO[bytes]", gzip.open(path))
    return lzma.open(path) if ending == ".xz" else path.open("rb")


def _read_start(path: Path) -> bytes:
    """Return the first whole lines of a file."""
    try:
        with _open(path) as stream:
            start = stream.read(NUM_SNIFFED)
            return start if len(start) < NUM_SNIFFED else start[: start.rfind(b"\n") + 1] or start
    except (EOFError, OSError, lzma.LZMAError) as error:
        raise DataError(f"cannot be read: {error}", path=path) from error


def _guess_encoding(sample: bytes) -> str:
    """Return 'utf-8' unless more of the sample speaks against it than for it.

    One broken row in a file of UTF-8 spoils that row; a file of another encoding has broken
    characters and no sound ones beyond ASCII.
    """
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    broken, sound = _count_signs(sample)
    if broken <= sound:
        return "utf-8"
    try:
        sample.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def _count_signs(sample: bytes) -> tuple[int, int]:
    """Count what is broken as UTF-8, and the signs beyond ASCII that are sound."""
    text = sample.decode("utf-8", "surrogateescape")
    broken = sum("\udc80" <= c <= "\udcff" for c in text)
    return broken, sum(c > "\x7f" for c in text) - broken


def _decode(sample: bytes, encoding: str, path: Path) -> str:
    try:
        text = sample.decode(encoding, "replace").removeprefix("\ufeff")
    except LookupError as error:
        raise DataError(f"there is no encoding {encoding!r}", path=path) from error
    return re.sub(r"\r\n?", "\n", text).lstrip("\n")


def _copy(path: Path, scratch: Path, encoding: str, header: str) -> Path:
    """Write a file again in UTF-8, below a header line where it has none."""
    copied = scratch / f"{len(list(scratch.iterdir()))}-{path.name.removesuffix(path.suffix)}"
    ending = path.suffix if path.suffix.lower() not in (".gz", ".xz") else ""
    copied = copied.with_name(copied.name + ending)
    with (
        _open(path) as stream,
        io.TextIOWrapper(stream, encoding, errors="strict", newline="") as text,
        copied.open("w", encoding="utf-8", newline="") as out,
    ):
        out.write(header)
        try:
            while block := text.read(NUM_SNIFFED):
                out.write(block)
        except UnicodeDecodeError as error:
            raise DataError(
                f"is not valid {encoding} ({error.reason}); convert it to UTF-8 first",
                path=path,
            ) from error
    return copied


def _guess_separator(text: str) -> str:
    """Return what the first line is split at, by plait.data's rule, or ; or | if they divide it."""
    line = text.split("\n", 1)[0]
    if "\t" in line:
        return "\t"
    for mark in (";", "|"):
        if line.count(mark) > line.count(",") and _divides(mark, text):
            return mark
    return ","


def _divides(mark: str, text: str) -> bool:
    """Say whether a sign is in each of the first lines, or of the rows: a text may have lines."""
    lines = [line for line in text.split("\n", 20)[:20] if line]
    rows = islice(_split_rows(text, mark, True), 20)
    return all(mark in line for line in lines) or all(len(row) > 1 for row in rows)


def _split_rows(text: str, separator: str, quoting: bool) -> Iterator[list[str]]:
    csv.field_size_limit(2**31 - 1)
    rows = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=separator,
        quoting=csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE,
    )
    return (row for row in rows if row)


def _guess_quoting(text: str, separator: str) -> bool:
    """Say whether quotes enclose fields: not if taking them so swallows separators or lines
    that the rows need to be of one width."""
    if '"' not in text:
        return True
    swallowed = any(
        separator in cell or "\n" in cell
        for row in _split_rows(text, separator, True)
        for cell in row
    )
    plain = {len(row) for row in _split_rows(text, separator, False)}
    return not (swallowed and len(plain) == 1 and plain != {1})


def _guess_header(rows: list[list[str]]) -> bool:
    """Say whether the first row names the columns, by what is below it.

    A cell speaks against it if it is what the others of its column are: a number among numbers,
    a sentence among sentences, a label among labels. A cell that is a usual name of a column, or
    a single word above sentences or numbers, speaks for it.
    """
    first, rest = rows[0], rows[1:]
    if not rest:
        return True
    against = known = names = 0
    for place, cell in enumerate(first):
        cell = cell.strip()
        below = [row[place].strip() for row in rest if len(row) > place and row[place].strip()]
        if words_of(cell) & COLUMN_WORDS and len(cell.split()) <= 3:
            known += 1
            continue
        if not cell or not below:
            continue
        numbers = sum(map(is_number, below)) >= 0.95 * len(below)
        sentences = sum(len(value.split()) for value in below) / len(below) >= 3
        repeated = len(set(below)) <= 0.5 * len(below) and cell in below
        if (numbers and is_number(cell)) or (sentences and len(cell.split()) >= 4) or repeated:
            against += 1
        elif re.fullmatch(r"[^\W\d][\w.-]*", cell) and (numbers or sentences):
            names += 1
    return known > 0 or names > against or against == 0
