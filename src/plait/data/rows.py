"""Convert chunks of a file to checked rows: stripped texts, labels as numbers, ids.

Every row is checked. Checks run over whole columns; only rows that fail one, and each
distinct way a label is written, are looked at one by one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from plait.data.source import BadRow, Chunk, Columns, Source, written_label
from plait.errors import DataError
from plait.tasks.reading import LabelError, LabelReader, plain_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from plait.config import BadRows

WHITESPACE = "".join(c for c in map(chr, range(0x10000)) if c.isspace())
"""The characters that str.strip removes; pyarrow's definition of space misses a few."""

NUM_PLACES = 3
"""Maximum number of skipped rows whose line a report names, by default."""
NUM_VALUES = 5
"""Maximum number of column values that a message lists."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Consecutive rows that passed every check."""

    texts: tuple[Any, ...]
    """One pyarrow string array per text column."""
    labels: npt.NDArray[np.float64] | None
    """[rows], or [rows, labels] of 0 and 1."""
    ids: Any
    """pyarrow string array."""
    position: int
    """Bytes of the file read so far."""
    numbers: npt.NDArray[np.int64]
    """Number of each row in its file, as its source counts."""
    whole: Any = None
    """The unchanged rows of the file, if requested."""
    file: int = 0
    """Index of the file in its split."""
    groups: Any = None
    """Group of each row, if requested: a pyarrow string array, '' for no group."""

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, rows: npt.NDArray[np.int64]) -> Rows:
        """Return some of the rows."""
        texts = tuple(t.take(rows) for t in self.texts)
        labels = None if self.labels is None else self.labels[rows]
        whole = None if self.whole is None else self.whole.take(rows)
        groups = None if self.groups is None else self.groups.take(rows)
        ids, numbers = self.ids.take(rows), self.numbers[rows]
        return Rows(texts, labels, ids, self.position, numbers, whole, self.file, groups)


def join_rows(chunks: Sequence[Rows]) -> Rows:
    """Concatenate rows, which may be of different files."""
    texts = zip(*(rows.texts for rows in chunks), strict=True)
    labels = [rows.labels for rows in chunks if rows.labels is not None]
    return Rows(
        tuple(pa.concat_arrays(column) for column in texts),
        np.concatenate(labels) if labels else None,
        pa.concat_arrays([rows.ids for rows in chunks]),
        chunks[-1].position,
        np.concatenate([rows.numbers for rows in chunks]),
    )


@dataclass(frozen=True, slots=True)
class FileReport:
    """Counts of the rows of one file."""

    name: str
    rows: int
    """Rows that passed the checks."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Rows dropped, by reason."""
    places: tuple[str, ...] = ()
    """Places of the first skipped rows: 'line 12'."""
    first: str = ""
    """The error of the first skipped row."""
    added: dict[str, int] = field(default_factory=dict)
    """Rows added to them, by augmentation."""
    held_out: int = 0
    """Rows left out because dev or test has them, including added rows."""
    others: int = 0
    """Rows that `where` excludes."""

    def __str__(self) -> str:
        total = sum(self.skipped.values())
        more = "".join(f", {n:,} more by {name}" for name, n in self.added.items())
        more += f", {self.held_out:,} left out, which dev or test has" if self.held_out else ""
        more += f", {self.others:,} others passed over" if self.others else ""
        if not total:
            return f"{self.name}: {self.rows:,} rows{more}"
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in self.skipped.items())
        rows = "row" if total == 1 else "rows"
        place = f"first at {self.places[0]}"
        return f"{self.name}: {total:,} {rows} skipped ({reasons}; {place}){more}"


class RowReader:
    """Iterate over a file's valid rows; raise at an invalid row, or skip and count it."""

    def __init__(
        self,
        source: Source,
        columns: Columns,
        labels: LabelReader | None,
        bad_rows: BadRows,
        *,
        keep_empty: bool = False,
        most_places: int = NUM_PLACES,
        way_past: str = "pass over it: bad_rows = 'skip'",
        constant: str | None = None,
        where: Mapping[str, Collection[str]] | None = None,
    ):
        """`constant` is every row's label, as written, where no column holds it.

        `where` are the values that `columns.where` must hold for a row to be looked at. `way_past`
        is what the user can do about a row that lacks something, but to fill it in.
        """
        self.source, self.columns, self.labels = source, columns, labels
        self.bad_rows, self.keep_empty, self.way_past = bad_rows, keep_empty, way_past
        self.most_places = most_places
        self.constant = None if labels is None or constant is None else labels.read(constant)
        self.where = where or {}
        self._rows = self._others = 0
        self._values: dict[str, list[str]] = {}
        """Values of the `where` columns in the first chunk, if it had no matching row."""
        self._skipped: Counter[str] = Counter()
        self._first: list[BadRow] = []

    def __iter__(self) -> Iterator[Rows]:
        for chunk in self.source.chunks(self.columns):
            asked = self._choose(chunk) if self.where else chunk
            self._others += len(chunk.numbers) - len(asked.numbers)
            rows, bad = self._check(asked)
            if bad:
                self._note(sorted(bad, key=lambda row: row.number))
            self._rows += len(rows)
            yield rows

    def report(self) -> FileReport:
        """Return the counts of rows; complete after all rows were read."""
        source = self.source
        lines = source.lines([row.number for row in self._first]) if self._first else []
        return FileReport(
            source.path.name,
            self._rows,
            dict(self._skipped),
            tuple(f"{source.unit} {line}" for line in lines),
            self._first[0].sentence if self._first else self._tell_values(),
            others=self._others,
        )

    def _note(self, bad: list[BadRow]) -> None:
        if self.bad_rows == "skip":
            self._skipped.update(row.reason for row in bad)
            self._first += bad[: self.most_places - len(self._first)]
            return
        source, row = self.source, bad[0]
        place = source.lines([row.number])[0]
        sentence = row.sentence
        if row.reason == "missing key" and (row.number == 0 or sentence.endswith("?")):
            sentence += source.remedy  # more likely it is called otherwise
        elif row.reason in ("empty text", "missing label", "missing key"):
            sentence += f"; fill it in, or {self.way_past}"
        elif row.reason == "not UTF-8":
            sentence += "; save the file as UTF-8"
        if source.unit == "line":
            raise DataError(sentence, path=source.path, line=place)
        raise DataError(f"{source.unit} {place}: {sentence}", path=source.path)

    def _choose(self, chunk: Chunk) -> Chunk:
        """Keep the rows that match `where`."""
        first = len(self.columns.text) + len(self.columns.labels)
        kept = np.ones(len(chunk.numbers), bool)
        for name, array in zip(self.columns.where, chunk.columns[first:], strict=False):
            text = _trim(decode(_as_text(array))[0])
            values = pa.array(sorted(self.where[name]), pa.string())
            fits = pc.is_in(text, value_set=values).to_numpy(zero_copy_only=False)
            if not fits.any():
                self._values.setdefault(name, pc.unique(text).to_pylist())
            kept &= fits
        return chunk if kept.all() else chunk.take(np.flatnonzero(kept))

    def _tell_values(self) -> str:
        """Return a hint with the values of a column, if no row matched `where`."""
        if self._rows or not self._values:
            return ""
        name, values = next(iter(self._values.items()))
        more = ", ..." if len(values) > NUM_VALUES else ""
        shown = ", ".join(repr(value[:40]) for value in values[:NUM_VALUES])
        return f"column {name!r} holds {shown}{more}"

    def _check(self, chunk: Chunk) -> tuple[Rows, list[BadRow]]:
        """Split a chunk into valid and invalid rows."""
        found: dict[int, BadRow] = {}  # by place in the chunk; the first complaint stands

        def complain(places: Any, reason: str, sentence: str) -> None:
            for i in np.asarray(places).tolist():
                found.setdefault(i, BadRow(int(chunk.numbers[i]), reason, sentence))

        num_texts = len(self.columns.text)
        texts = []
        for name, array in zip(self.columns.text, chunk.columns, strict=False):
            text, broken = decode(array)
            complain(broken, "not UTF-8", f"column {name!r} is not UTF-8")
            complain(
                _where(pc.match_substring(text, "\0")),
                "NUL byte",
                f"column {name!r} holds a NUL byte",
            )
            texts.append(_trim(text))
        values = None
        if self.constant is not None:
            values = np.repeat(np.asarray(self.constant)[None], len(chunk.numbers), axis=0)
        elif self.labels is not None:
            names = self.columns.labels
            found_labels = [
                self._read_labels(array, f"column {name!r}: " if len(names) > 1 else "", complain)
                for name, array in zip(names, chunk.columns[num_texts:], strict=False)
            ]
            values = found_labels[0] if len(names) == 1 else self.labels.join(found_labels)
            if self.labels.votes:
                message = "no label column has a value"
                complain(np.flatnonzero(np.isnan(values)), "missing label", message)
        for name, text in zip(self.columns.text, texts, strict=True):
            if not self.keep_empty:
                complain(_where(pc.equal(text, "")), "empty text", f"column {name!r} is empty")
        if self.columns.id is None:
            ids = pa.array(chunk.numbers).cast(pa.string())
        else:
            ids, broken = decode(_as_text(chunk.columns[-1]))
            complain(broken, "not UTF-8", f"column {self.columns.id!r} is not UTF-8")
        groups = None
        if self.columns.group is not None:
            place = num_texts + len(self.columns.labels) + len(self.columns.where)
            groups, broken = decode(_as_text(chunk.columns[place]))
            groups = _trim(groups)
            complain(broken, "not UTF-8", f"column {self.columns.group!r} is not UTF-8")
        rows = Rows(
            tuple(texts),
            values,
            ids,
            chunk.position,
            chunk.numbers,
            chunk.whole,
            groups=groups,
        )
        if found:
            good = np.ones(len(rows), bool)
            good[list(found)] = False
            rows = rows.take(np.flatnonzero(good))
        return rows, [*chunk.bad, *found.values()]

    def _read_labels(self, array: Any, where: str, complain: Any) -> npt.NDArray[np.float64]:
        """Read each distinct label once and spread the values over the rows."""
        assert self.labels is not None
        if pa.types.is_nested(array.type):
            array = pa.array([written_label(value) for value in array.to_pylist()], pa.string())
        coded = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
        written = [*coded.dictionary.to_pylist(), None]
        # a null has no code; it gets the last entry
        indices = pc.fill_null(coded.indices.cast(pa.int64()), len(written) - 1)
        codes: npt.NDArray[np.int64] = indices.to_numpy(zero_copy_only=False)
        values = np.zeros((len(written), *self.labels.shape))
        for code in np.unique(codes).tolist():
            try:
                values[code] = self.labels.read(plain_text(written[code]))
            except UnicodeDecodeError:
                message = f"{where}the label is not UTF-8"
                complain(np.flatnonzero(codes == code), "not UTF-8", message)
            except LabelError as error:
                complain(np.flatnonzero(codes == code), error.reason, f"{where}{error}")
        spread: npt.NDArray[np.float64] = values[codes]
        return spread


def _trim(text: Any) -> Any:
    return pc.utf8_trim(text, characters=WHITESPACE)


def _where(mask: Any) -> npt.NDArray[np.int64]:
    return np.flatnonzero(mask.to_numpy(zero_copy_only=False))


def decode(array: Any) -> tuple[Any, list[int]]:
    """Decode bytes; also return the indices that are not UTF-8, whose text is ''."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    # through binary, because pyarrow does not validate strings
    array = pc.fill_null(array.cast(pa.binary()), b"")
    try:
        return array.cast(pa.string()), []
    except pa.ArrowInvalid:
        texts, broken = [], []
        for i, value in enumerate(array.to_pylist()):
            try:
                texts.append(value.decode("utf-8"))
            except UnicodeDecodeError:
                texts.append("")
                broken.append(i)
        return pa.array(texts, pa.string()), broken


def _as_text(array: Any) -> Any:
    """Convert an id column of any type to strings."""
    kind = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if any(t(kind) for t in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary)):
        return array
    if pa.types.is_integer(kind):
        return array.cast(pa.string())
    return pa.array([plain_text(value) for value in array.to_pylist()], pa.string())
