"""Separated text (CSV, TSV and the like) becomes chunks of columns."""

from __future__ import annotations

import csv
import io
import re
import threading
import weakref
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from plait.data.source import BadRow, Chunk, Columns, Source
from plait.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class Separated(Source):
    """CSV, TSV and the like.

    pyarrow reads it fast. Where pyarrow stumbles (a row of another width, a row longer than a
    chunk), Python's csv module, which is slower and forgives more, goes on from there.
    """

    def __init__(self, path: Path, separator: str | None, quoting: bool):
        super().__init__(path)
        self.quoting = quoting
        if separator is not None:
            refuse_separator(separator, path)
        self.separator = separator

    def chunks(self, columns: Columns) -> Iterator[Chunk]:
        """Read the columns asked for, in order."""
        header = self.names()
        self.require(columns, header)
        places = [header.index(name) for name in columns]
        if not columns.whole:
            yield from self._read(places, len(header))
            return
        self.require(header, header)  # each name stands for one column
        for chunk in self._read([*places, *range(len(header))], len(header)):
            yield chunk.fold(header)

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

    def names(self) -> list[str]:
        """Return the header."""
        with self._open() as (stream, _):
            start = stream.read(self.chunk_bytes).removeprefix(b"\xef\xbb\xbf").lstrip(b"\r\n")
            stream.seek(0)
            line = re.split(rb"[\r\n]", start, maxsplit=1)[0]
            if start.startswith((b"\xff\xfe", b"\xfe\xff")):
                raise DataError("the file is UTF-16; save it as UTF-8", path=self.path)
            if re.fullmatch(rb"sep=.", line):
                raise DataError(
                    "remove this line, which only Excel understands", path=self.path, line=1
                )
            if self.separator is None:
                self.separator = find_separator(line, self.path, quoting=self.quoting)
            for number, record in self._records(stream):
                header = [name.strip() for name in record]
                if any("\udc80" <= c <= "\udcff" or c == "\0" for name in header for c in name):
                    raise DataError(
                        "the header is not UTF-8 text; save it as UTF-8, a spreadsheet as CSV",
                        path=self.path,
                        line=number,
                    )
                return header
        raise DataError("the file is empty", path=self.path)

    def _read(self, places: list[int], width: int) -> Iterator[Chunk]:
        done = 0
        try:
            for chunk in self._read_fast(places, width):
                done += len(chunk.numbers)
                yield chunk
        except pa.ArrowInvalid:
            yield from self._read_carefully(places, width, done)

    def _read_fast(self, places: list[int], width: int) -> Iterator[Chunk]:
        names, end = [f"f{place}" for place in places], f"f{width - 1}"
        with self._open() as (stream, raw):
            count, last = -1, None  # the header comes as a row
            for batch in self._batches(stream, width, list(dict.fromkeys([*names, end]))):
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

    def _batches(self, stream: IO[bytes], width: int, names: list[str]) -> Iterator[Any]:
        """Let pyarrow read the stream, and wait until its threads have let go of it.

        A thread of pyarrow's that still holds a Python object while the interpreter goes down
        ends the process with SIGABRT, after all went well.
        """
        lent: Any = _WholeLineEnds(stream)
        returned = threading.Event()
        weakref.finalize(lent, returned.set).atexit = False
        try:
            reader = pyarrow.csv.open_csv(
                lent,
                pyarrow.csv.ReadOptions(
                    use_threads=False, block_size=self.chunk_bytes, autogenerate_column_names=True
                ),
                pyarrow.csv.ParseOptions(
                    delimiter=self.separator,
                    quote_char='"' if self.quoting else False,
                    newlines_in_values=self.quoting,
                ),
                # bytes, so that a text that is not UTF-8 spoils its own row alone
                pyarrow.csv.ConvertOptions(
                    column_types={f"f{i}": pa.binary() for i in range(width)},
                    include_columns=names,
                ),
            )
            with reader:
                yield from reader
        finally:
            lent = reader = None
            returned.wait(timeout=5)

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
                    bad.append(self._other_width(number, len(record), width))
                    continue
                numbers.append(number)
                for column, place in zip(columns, places, strict=True):
                    column.append(record[place].encode("utf-8", "surrogateescape"))
                    size += len(column[-1])
                if size > self.chunk_bytes or len(numbers) >= self.chunk_rows:
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
            text.detach()  # the caller closes the stream

    def _other_width(self, number: int, got: int, width: int) -> BadRow:
        columns = "column" if got == 1 else "columns"
        message = f"the row has {got} {columns}, the header {width}"
        if got > width and self.quoting:
            message += f"; quote a text that contains {self.separator!r} with double quotes"
        return BadRow(number, "wrong number of columns", message)

    def _refuse_open_quote(self) -> None:
        """Raise DataError if a quote is still open at the end of the file."""
        if self.quoting:
            with self._open() as (stream, _):
                for _ in self._records(stream, strict=True):
                    pass


class _WholeLineEnds(io.RawIOBase):
    """A stream whose reads never end between CR and LF.

    pyarrow drops an LF that begins a block after a CR, even inside quotes.
    """

    def __init__(self, stream: IO[bytes]):
        self._stream, self._held = stream, b""

    def readable(self) -> bool:
        """Return True, as io requires of a readable stream."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Read, but keep a trailing CR for the next call."""
        data = self._held + self._stream.read(size - len(self._held) if size >= 0 else -1)
        self._held = b""
        if data.endswith(b"\r") and len(data) > 1:
            data, self._held = data[:-1], b"\r"
        return data


def find_separator(header: bytes, path: Path, *, quoting: bool) -> str:
    """Return the separator of a file, guessed from its header and name."""
    if quoting:  # ignore separators inside quoted names
        header = re.sub(rb'(?<![^\t,;])"(?:[^"]|"")*"', b"", header)
    if b"\t" in header:
        return "\t"
    if b"," in header:
        return ","
    # A single column has no separator: use the file name, because texts contain commas.
    if path.name.lower().removesuffix(".gz").removesuffix(".xz").endswith(".tsv"):
        return "\t"
    return ";" if b";" in header else ","  # as spreadsheets save CSV where 3,7 is a number


def refuse_separator(separator: str, path: Path) -> None:
    """Raise DataError if a separator is not one ASCII character other than a quote or newline."""
    if len(separator) != 1 or not separator.isascii() or separator in '"\r\n':
        raise DataError(
            f"separator {separator!r} is not one plain character, such as ';' or '\\t'", path=path
        )
