"""A data file of any known format becomes chunks of columns, a few MiB at a time.

Known: separated text (.csv, .tsv, or any other name), JSON lines (.jsonl, .ndjson) and
Parquet (.parquet), each plain or compressed (.gz, .xz).

Rows are numbered from 0, the header not counted, as they are read; `Source.lines` turns the
few numbers an error needs into lines of the file, by reading it once more.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import re
import shutil
import tempfile
import zlib
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from plait.errors import DataError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

CHUNK_BYTES = 4 << 20
CHUNK_ROWS = 1 << 14

_DAMAGE = (EOFError, OSError, lzma.LZMAError, zlib.error)
"""What is raised for a file that is cut short or is not compressed as its name says."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the columns to read."""

    text: tuple[str, ...]
    label: str | None = None
    id: str | None = None

    def __iter__(self) -> Iterator[str]:
        yield from self.text
        yield from (name for name in (self.label, self.id) if name is not None)


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that cannot be used: its number, why in two words, and why in a sentence."""

    number: int
    reason: str
    sentence: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some consecutive rows: one array per column asked for, in the order of `Columns`."""

    numbers: npt.NDArray[np.int64]
    columns: list[Any]
    """pyarrow arrays: binary or string for texts, anything for a label or an id."""
    position: int
    """Bytes of the file read so far."""
    bad: list[BadRow] = field(default_factory=list)
    """Rows of this stretch that have no columns to speak of."""


def open_source(path: Path, *, separator: str | None = None, quoting: bool = True) -> Source:
    """Return the reader for a file, chosen by its name."""
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in (".gz", ".xz"):
        suffixes.pop()
    kind = suffixes[-1] if suffixes else ""
    if kind == ".parquet":
        return Parquet(path)
    if kind in (".jsonl", ".ndjson"):
        return JsonLines(path)
    if kind == ".json":
        raise DataError("JSON is read one object a line, from a file named .jsonl", path=path)
    return Separated(path, separator, quoting)


def plain_text(value: object) -> str | None:
    """Write a value of JSON or Parquet as a user would: 1.0 is '1', a boolean 'true'."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


class Source(ABC):
    """A data file that can be read in chunks, any number of times."""

    unit: ClassVar[str] = "line"

    def __init__(self, path: Path):
        self.path = path

    @abstractmethod
    def chunks(self, columns: Columns) -> Iterator[Chunk]:
        """Read the columns asked for, in order; a column that is not there is an error."""

    def lines(self, numbers: Sequence[int]) -> list[int]:
        """Return where rows stand in the file, counted from 1."""
        return [number + 1 for number in numbers]

    @contextmanager
    def _open(self) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        """Open the file; give its uncompressed stream, and the raw one to see how far it is."""
        try:
            with self.path.open("rb") as raw:
                ending = self.path.suffix.lower()
                if ending == ".gz":
                    with gzip.open(raw) as stream:
                        yield cast("IO[bytes]", stream), raw
                elif ending == ".xz":
                    with lzma.open(raw) as stream:
                        yield stream, raw
                else:
                    yield raw, raw
        except _DAMAGE as error:
            raise DataError(f"cannot be read: {error}", path=self.path) from error

    def _require(self, wanted: Iterable[str], there: list[str]) -> None:
        for name in wanted:
            if there.count(name) > 1:
                raise DataError(f"column {name!r} appears more than once", path=self.path)
            if name in there:
                continue
            near = suggest(name, there)
            near = near if "did you mean" in near else ""
            shown = ", ".join(repr(c[:60]) for c in there)
            alone = "; is the separator right?" if len(there) == 1 and not near else ""
            raise DataError(
                f"there is no column {name!r}; the file has {shown}{near}{alone}", path=self.path
            )


# --- separated text ------------------------------------------------------------------------


class Separated(Source):
    """CSV, TSV and the like.

    pyarrow reads it fast. Where pyarrow stumbles (a row of another width, a row longer than a
    chunk), Python's csv module, which is slower and forgives more, goes on from there.
    """

    def __init__(self, path: Path, separator: str | None, quoting: bool):
        super().__init__(path)
        self.quoting = quoting
        if separator is not None and (
            len(separator) != 1 or not separator.isascii() or separator in '"\r\n'
        ):
            raise DataError(f"separator {separator!r} is not one plain character", path=path)
        self.separator = separator

    def chunks(self, columns: Columns) -> Iterator[Chunk]:
        """Read the columns asked for, in order."""
        header = self._read_header()
        self._require(columns, header)
        places = [header.index(name) for name in columns]
        done = 0
        try:
            for chunk in self._read_fast(places, len(header)):
                done += len(chunk.numbers)
                yield chunk
        except pa.ArrowInvalid:
            yield from self._read_carefully(places, len(header), done)

    def lines(self, numbers: Sequence[int]) -> list[int]:
        """Return where rows begin, counting blank lines and those inside quotes."""
        wanted, found = set(numbers), {}
        with self._open() as (stream, _):
            for number, (line, _) in enumerate(self._records(stream)):
                if number - 1 in wanted:  # the header is record 0
                    found[number - 1] = line
                    if len(found) == len(wanted):
                        break
        return [found[number] for number in numbers]

    def _read_header(self) -> list[str]:
        with self._open() as (stream, _):
            if self.separator is None:
                start = stream.read(CHUNK_BYTES).removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
                line = re.split(rb"[\r\n]", start, maxsplit=1)[0]
                self.separator = "\t" if b"\t" in line else ","
                stream.seek(0)
            for number, record in self._records(stream):
                header = [name.strip() for name in record]
                if any("\udc80" <= c <= "\udcff" or c == "\0" for name in header for c in name):
                    raise DataError("the header is not UTF-8 text", path=self.path, line=number)
                return header
        raise DataError("the file is empty", path=self.path)

    def _read_fast(self, places: list[int], width: int) -> Iterator[Chunk]:
        names, end = [f"f{place}" for place in places], f"f{width - 1}"
        with (
            self._open() as (stream, raw),
            pyarrow.csv.open_csv(
                stream,
                pyarrow.csv.ReadOptions(
                    use_threads=False, block_size=CHUNK_BYTES, autogenerate_column_names=True
                ),
                pyarrow.csv.ParseOptions(
                    delimiter=self.separator,
                    quote_char='"' if self.quoting else False,
                    newlines_in_values=self.quoting,
                ),
                # bytes, so that a text that is not UTF-8 spoils its own row alone
                pyarrow.csv.ConvertOptions(
                    column_types={f"f{i}": pa.binary() for i in range(width)},
                    include_columns=list(dict.fromkeys([*names, end])),
                ),
            ) as reader,
        ):
            count, last = -1, None  # the header comes as a row
            for batch in reader:
                numbers = np.arange(count, count + len(batch))
                count += len(batch)
                if len(batch) == 0:
                    continue
                last = batch.column(end)[-1].as_py()
                skip = int(numbers[0] < 0)
                arrays = [batch.column(name).slice(skip) for name in names]
                yield Chunk(numbers[skip:], arrays, raw.tell())
            if last is not None and b"\n" in last:
                self._refuse_open_quote()

    def _read_carefully(self, places: list[int], width: int, done: int) -> Iterator[Chunk]:
        numbers: list[int] = []
        columns: list[list[bytes]] = [[] for _ in places]
        bad: list[BadRow] = []
        record: list[str] = []
        size = 0

        def chunk(position: int) -> Chunk:
            arrays = [pa.array(column, pa.binary()) for column in columns]
            return Chunk(np.array(numbers, np.int64), arrays, position, bad)

        with self._open() as (stream, raw):
            for number, (_, record) in enumerate(self._records(stream), start=-1):
                if number < done:
                    continue
                if len(record) != width:
                    bad.append(_other_width(number, len(record), width))
                    continue
                numbers.append(number)
                for column, place in zip(columns, places, strict=True):
                    column.append(record[place].encode("utf-8", "surrogateescape"))
                    size += len(column[-1])
                if size > CHUNK_BYTES or len(numbers) >= CHUNK_ROWS:
                    yield chunk(raw.tell())
                    numbers, columns, bad, size = [], [[] for _ in places], [], 0
            if record and "\n" in record[-1]:
                self._refuse_open_quote()
            yield chunk(raw.tell())

    def _records(
        self, stream: IO[bytes], *, strict: bool = False
    ) -> Iterator[tuple[int, list[str]]]:
        """Give each record with the line it begins on; undecodable bytes become surrogates."""
        csv.field_size_limit(2**31 - 1)  # the most Windows takes; 128 KiB unless raised
        text = io.TextIOWrapper(stream, "utf-8-sig", errors="surrogateescape", newline="")
        reader = csv.reader(
            text,
            delimiter=self.separator or ",",
            quoting=csv.QUOTE_MINIMAL if self.quoting else csv.QUOTE_NONE,
            strict=strict,
        )
        line = 1
        try:
            for record in reader:
                if record:
                    yield line, record
                line = reader.line_num + 1
        except csv.Error as error:
            # strict only, and of its complaints only this one is unambiguous damage
            if "unexpected end of data" in str(error):
                raise DataError(
                    "a quote opened in this row is never closed; close it, or set "
                    "quoting = false where quotes are ordinary characters",
                    path=self.path,
                    line=line,
                ) from error
        finally:
            text.detach()  # leaves the stream to be closed by who opened it

    def _refuse_open_quote(self) -> None:
        """Fail if the last row reaches the end of the file inside quotes, eating what followed."""
        if self.quoting:
            with self._open() as (stream, _):
                for _ in self._records(stream, strict=True):
                    pass


def _other_width(number: int, got: int, width: int) -> BadRow:
    columns = "column" if got == 1 else "columns"
    return BadRow(
        number, "wrong number of columns", f"the row has {got} {columns}, the header {width}"
    )


# --- JSON lines ----------------------------------------------------------------------------


class JsonLines(Source):
    """One JSON object a line; blank lines are passed over."""

    def chunks(self, columns: Columns) -> Iterator[Chunk]:
        """Read the keys asked for, in order."""
        with self._open() as (stream, raw):
            numbers: list[int] = []
            rows: list[list[str | None]] = []
            bad: list[BadRow] = []
            size = 0
            for number, line in enumerate(stream):
                if number == 0:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                if not line.strip():
                    continue
                row = _read_object(number, line, columns)
                if isinstance(row, BadRow):
                    bad.append(row)
                    continue
                numbers.append(number)
                rows.append(row)
                size += len(line)
                if size > CHUNK_BYTES:
                    yield Chunk(np.array(numbers), _columns(rows, columns), raw.tell(), bad)
                    numbers, rows, bad, size = [], [], [], 0
            if rows or bad:
                last = np.array(numbers, np.int64)
                yield Chunk(last, _columns(rows, columns), raw.tell(), bad)


def _columns(rows: list[list[str | None]], columns: Columns) -> list[Any]:
    return [pa.array([row[i] for row in rows], pa.string()) for i, _ in enumerate(columns)]


def _read_object(number: int, line: bytes, columns: Columns) -> list[str | None] | BadRow:
    try:
        record = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return BadRow(number, "not UTF-8", "the line is not UTF-8")
    except json.JSONDecodeError as error:
        sentence = f"the line is not JSON: {error.msg} at character {error.pos + 1}"
        return BadRow(number, "broken JSON", sentence)
    except (ValueError, RecursionError) as error:  # numbers or nesting without end
        return BadRow(number, "broken JSON", f"the line is not JSON: {error}")
    if not isinstance(record, dict):
        kind = type(record).__name__
        return BadRow(number, "broken JSON", f"the line holds a {kind}, not a JSON object")
    row: list[str | None] = []
    for name in columns:
        if name not in record:
            near = suggest(name, record)
            near = near if "did you mean" in near else ""
            there = ", ".join(map(repr, record))
            sentence = f"there is no key {name!r}; the line has {there}{near}"
            return BadRow(number, "missing key", sentence)
        value = record[name]
        if name in columns.text and value is not None and not isinstance(value, str):
            sentence = f"{name!r} is {json.dumps(value)[:40]}, not a text"
            return BadRow(number, "text is not a string", sentence)
        row.append(text := plain_text(value))
        if text is not None and any("\ud800" <= c <= "\udfff" for c in text):
            return BadRow(number, "not UTF-8", f"{name!r} holds half a surrogate pair")
    return row


# --- Parquet -------------------------------------------------------------------------------


class Parquet(Source):
    """Parquet; what is compressed as a whole is unpacked to a temporary file first."""

    unit = "row"

    def chunks(self, columns: Columns) -> Iterator[Chunk]:
        """Read the columns asked for, in order."""
        with self._open() as (stream, raw), tempfile.TemporaryFile() as unpacked:
            if stream is not raw:  # Parquet is read from its end
                shutil.copyfileobj(stream, unpacked, CHUNK_BYTES)
            try:
                yield from self._read(raw if stream is raw else unpacked, columns)
            except pa.ArrowException as error:
                raise DataError(f"is not sound Parquet: {error}", path=self.path) from error

    def _read(self, stream: IO[bytes], columns: Columns) -> Iterator[Chunk]:
        file = pyarrow.parquet.ParquetFile(stream)
        schema = file.schema_arrow
        self._require(columns, schema.names)
        for name in columns.text:
            self._require_text(name, schema.field(name).type)
        size, total, done = self.path.stat().st_size, file.metadata.num_rows, 0
        for batch in file.iter_batches(CHUNK_ROWS, columns=list(dict.fromkeys(columns))):
            numbers = np.arange(done, done + len(batch))
            done += len(batch)
            yield Chunk(numbers, [batch.column(n) for n in columns], size * done // total)

    def _require_text(self, name: str, kind: Any) -> None:
        inner = kind.value_type if pa.types.is_dictionary(kind) else kind
        tests = (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_binary,
            pa.types.is_large_binary,
        )
        if not any(test(inner) for test in tests):
            raise DataError(f"column {name!r} holds {kind}, not text", path=self.path)
