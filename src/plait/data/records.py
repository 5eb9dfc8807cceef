"""A file of any size becomes slices of whole rows, beside the checked texts that tasks read.

What stands in a file is carried along as it is: columns of separated text as text, those of
Parquet in their types, objects of JSON as lines. Nothing of a slice is kept once it is done.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.data.files import open_source
from plait.data.jsonlines import JsonLines
from plait.data.rows import RowReader, decode
from plait.data.separated import Separated
from plait.data.source import Columns
from plait.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Records:
    """Consecutive rows: what stands in them, and their texts, stripped."""

    numbers: npt.NDArray[np.int64]
    """Their numbers in the file, from 0."""
    whole: Any
    """pyarrow: a struct array of all columns, or lines of JSON."""
    texts: dict[str, Any]
    """A string array for every text column."""
    first: dict[str, Any]
    """Arrays of columns that stand before the rows' own, such as their numbers, by name."""

    def __len__(self) -> int:
        return len(self.numbers)

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[str]], start: int = 0) -> Records:
        """Make records of texts given by hand, numbered from `start`."""
        arrays = {name: pa.array(values, pa.string()) for name, values in columns.items()}
        whole = pa.StructArray.from_arrays(list(arrays.values()), names=list(arrays))
        numbers = np.arange(start, start + len(whole))
        return cls(numbers, whole, arrays, _name_rows("id", numbers))

    def take(self, rows: npt.NDArray[np.int64]) -> Records:
        """Return some of the rows."""
        texts = {name: array.take(rows) for name, array in self.texts.items()}
        first = {name: array.take(rows) for name, array in self.first.items()}
        return Records(self.numbers[rows], self.whole.take(rows), texts, first)

    def cut(self, start: int, end: int) -> Records:
        """Return consecutive ones of the rows."""
        count = min(end, len(self)) - start
        texts = {name: array.slice(start, count) for name, array in self.texts.items()}
        first = {name: array.slice(start, count) for name, array in self.first.items()}
        return Records(self.numbers[start:end], self.whole.slice(start, count), texts, first)

    def examples(self, names: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the texts of some columns, row by row."""
        return list(zip(*(self.texts[name].to_pylist() for name in names), strict=True))

    def rows(self) -> list[dict[str, Any]]:
        """Return every row as plain values by name."""
        if pa.types.is_struct(self.whole.type):
            names = [field.name for field in self.whole.type]
            columns = [_plain(array) for array in self.whole.flatten()]
            found = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        else:
            found = [json.loads(line) for line in self.whole.to_pylist()]
        for name, array in reversed(self.first.items()):
            found = [{name: v, **row} for v, row in zip(array.to_pylist(), found, strict=True)]
        return found

    def arrays(self, schema: pa.Schema) -> list[Any]:
        """Return every column in the types of a schema, which is that of the file."""
        first = list(self.first.values())
        if pa.types.is_struct(self.whole.type):
            pairs = zip(self.whole.flatten(), list(schema)[len(first) :], strict=True)
            return first + [array.cast(field.type) for array, field in pairs]
        rows = [json.loads(line) for line in self.whole.to_pylist()]
        for field in list(schema)[len(first) :]:
            values = [row.get(field.name) for row in rows]
            if pa.types.is_string(field.type):
                values = [in_text(value) for value in values]
            first.append(pa.array(values, field.type))
        return first


@dataclass(frozen=True, slots=True)
class Survey:
    """What is in a file: how many rows, and which columns of which types."""

    num_rows: int
    schema: pa.Schema
    num_empty: int = 0
    """Rows that lack a text."""


class RecordFile:
    """A file of rows, which may be read again and again."""

    def __init__(
        self,
        path: Path,
        text: Sequence[str],
        ids: Sequence[str] = ("id",),
        *,
        separator: str | None = None,
        quoting: bool = True,
        taken: Collection[str] = (),
        keep_empty: bool = False,
    ):
        self.path, self.taken = path, frozenset(taken)
        """`taken` are names that rows must not have, since something else is to be called so."""
        self.keep_empty = keep_empty
        """Whether rows that lack a text are given as well; else they are errors."""
        self.source = open_source(path, separator=separator, quoting=quoting)
        self.source.remedy = "; --column (from Python, text) names those to read"
        names = tuple(dict.fromkeys(text))
        self.columns = Columns(names, whole=True, may_lack_text=keep_empty)
        named = set(self.source.names())
        if len(named) == 1:
            self.source.remedy += ", and bare lines of text are read from standard input (< FILE)"
        self.number_name = None if named & set(ids) else "id"
        """Name of the added column of row numbers; None if the file has an id column."""

    def survey(self, progress: Progress | None = None) -> Survey:
        """Read the file once; raise DataError for an unusable row before any prediction."""
        count = num_empty = 0
        kinds: dict[str, set[type]] = {}
        fields: list[Any] = [(self.number_name, pa.string())] if self.number_name else []
        whole = None
        size = self.path.stat().st_size
        for rows in self._rows():
            count, whole = count + len(rows), rows.whole
            if self.keep_empty:
                lacks = [np.asarray(pc.equal(text, "")) for text in rows.texts]
                num_empty += int(np.any(lacks, axis=0).sum())
            if isinstance(self.source, JsonLines):
                for line in whole.to_pylist():
                    for key, value in json.loads(line).items():
                        kinds.setdefault(key, set()).add(_kind(value))
            if progress is not None:
                progress(str(self.path), rows.position, size)
        if isinstance(self.source, JsonLines):
            if count:
                self.source.require(self.columns.text, list(kinds))  # of some objects at least
            if self.number_name in kinds:  # a later line has an id, the first one has none
                self.number_name, fields = None, []
            fields += [(name, _json_type(found)) for name, found in kinds.items()]
        elif whole is None:  # no rows: no types either
            fields += list(text_schema(self.source.names()))
        else:
            fields += [(field.name, field.type) for field in whole.type]
        return Survey(count, pa.schema(fields), num_empty)

    def slices(self, size: int, start: int = 0) -> Iterator[Records]:
        """Give the rows from `start` on, so many at a time, however the file is read."""
        waiting: list[Records] = []
        num_waiting = number = 0
        for rows in self._rows():
            first, number = number, number + len(rows)
            if number <= start:
                continue
            texts = dict(zip(self.columns.text, rows.texts, strict=True))
            numbers = np.arange(first, number)
            named = _name_rows(self.number_name, numbers)
            read = Records(numbers, rows.whole, texts, named)
            if first < start:
                read = read.cut(start - first, len(read))
            waiting.append(read)
            num_waiting += len(read)
            if num_waiting < size:
                continue
            joined = _join(waiting)
            end = num_waiting - num_waiting % size
            for place in range(0, end, size):
                yield joined.cut(place, place + size)
            waiting, num_waiting = [joined.cut(end, num_waiting)], num_waiting - end
        if num_waiting:
            yield _join(waiting)

    def _rows(self) -> Iterator[Any]:
        number = 0
        reader = RowReader(
            self.source,
            self.columns,
            None,
            "error",
            keep_empty=self.keep_empty,
            way_past="leave it unanswered with --skip-empty (from Python, skip_empty=True)",
        )
        for rows in reader:
            whole = rows.whole
            if isinstance(self.source, Separated):
                whole = self._decode(whole, number)
            elif pa.types.is_struct(whole.type):
                whole = _without_dictionaries(whole)
            else:
                self._refuse_taken(whole, rows.numbers)
            number += len(rows)
            yield replace(rows, whole=whole)

    def _refuse_taken(self, lines: Any, numbers: npt.NDArray[np.int64]) -> None:
        """Look through each object of JSON, since the first need not have all keys."""
        for line, number in zip(lines.to_pylist() if self.taken else (), numbers, strict=False):
            if there := sorted(self.taken & json.loads(line).keys()):
                raise DataError(
                    f"the row has a field {there[0]!r}, as its answer is to have; give it another "
                    "name",
                    path=self.path,
                    line=self.source.lines([int(number)])[0],
                )

    def _decode(self, whole: Any, start: int) -> Any:
        arrays = []
        for field, array in zip(whole.type, whole.flatten(), strict=True):
            texts, broken = decode(array)
            if broken:
                line = self.source.lines([start + broken[0]])[0]
                raise DataError(
                    f"column {field.name!r} is not UTF-8; save the file as UTF-8",
                    path=self.path,
                    line=line,
                )
            arrays.append(texts)
        return pa.StructArray.from_arrays(arrays, names=[field.name for field in whole.type])


def text_schema(names: Sequence[str]) -> pa.Schema:
    """Return the columns of what is text throughout."""
    return pa.schema([(name, pa.string()) for name in names])


def in_text(value: Any) -> str | None:
    """Write any value of a row as text: a text as it is, the rest as JSON does, nothing as None."""
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    # JSON may hold halves of surrogate pairs, which no file of text can.
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _name_rows(name: str | None, numbers: npt.NDArray[np.int64]) -> dict[str, Any]:
    """Return a column of the rows' numbers, as text; none without a name for it."""
    return {} if name is None else {name: pa.array(map(str, numbers.tolist()), pa.string())}


def _join(parts: Sequence[Records]) -> Records:
    if len(parts) == 1:
        return parts[0]
    texts = {
        name: pa.concat_arrays([part.texts[name] for part in parts]) for name in parts[0].texts
    }
    first = {
        name: pa.concat_arrays([part.first[name] for part in parts]) for name in parts[0].first
    }
    whole = pa.concat_arrays([part.whole for part in parts])
    return Records(np.concatenate([part.numbers for part in parts]), whole, texts, first)


def _without_dictionaries(whole: Any) -> Any:
    arrays = [
        array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array
        for array in whole.flatten()
    ]
    return pa.StructArray.from_arrays(arrays, names=[field.name for field in whole.type])


def _plain(array: Any) -> list[Any]:
    """Return values that JSON has; of the rest, such as times and decimals, the text."""
    kind = array.type
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        array = array.cast(pa.string())
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [v if v is None else v.decode("utf-8", "replace") for v in array.to_pylist()]
    values: list[Any] = array.to_pylist()
    return values


def _kind(value: Any) -> type:
    is_huge = isinstance(value, int) and not -(2**63) <= value < 2**63
    return str if is_huge else type(value)


def _json_type(kinds: set[type]) -> Any:
    """Choose a type that holds every value a key has; text where they are of several kinds."""
    known = kinds - {type(None)}
    if known == {bool}:
        return pa.bool_()
    if known == {int}:
        return pa.int64()
    if known and known <= {int, float}:
        return pa.float64()
    return pa.string()
