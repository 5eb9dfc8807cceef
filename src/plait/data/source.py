"""What every reader of data files has in common: a file becomes chunks of columns.

Rows are numbered from 0, the header not counted, as they are read; `Source.lines` turns the
few numbers an error needs into lines of the file, by reading it once more.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pyarrow as pa

from plait.errors import DataError, suggest
from plait.tasks.reading import LIST_MARK, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

_DAMAGE = (EOFError, OSError, lzma.LZMAError, zlib.error)
"""What is raised for a file that is cut short or is not compressed as its name says."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the columns to read."""

    text: tuple[str, ...]
    labels: tuple[str, ...] = ()
    """The label's, or one of 0 and 1 for each label; empty where none is read."""
    id: str | None = None
    where: tuple[str, ...] = ()
    """Those that say whether a row is taken at all."""
    group: str | None = None
    """The one that says which rows belong together."""
    whole: bool = False
    """Whether every row is wanted as it stands in the file as well."""
    may_lack_text: bool = False
    """Whether an object of JSON need not have a text's key: the text is then empty."""

    def __iter__(self) -> Iterator[str]:
        yield from self.text
        yield from self.labels
        yield from self.where
        if self.group is not None:
            yield self.group
        if self.id is not None:
            yield self.id


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
    whole: Any = None
    """The rows as they stand, where asked for: a struct array of all columns, or lines of JSON."""

    def take(self, rows: npt.NDArray[np.int64]) -> Chunk:
        """Return some of the rows; those without columns stay."""
        whole = None if self.whole is None else self.whole.take(rows)
        columns = [column.take(rows) for column in self.columns]
        return replace(self, numbers=self.numbers[rows], columns=columns, whole=whole)

    def fold(self, names: Sequence[str]) -> Chunk:
        """Return the same with its last columns, which have these names, as whole rows."""
        count = len(self.columns) - len(names)
        whole = pa.StructArray.from_arrays(self.columns[count:], names=list(names))
        return replace(self, columns=self.columns[:count], whole=whole)


def pieces(text: Any, num_bytes: int) -> Iterator[Any]:
    """Give a string array in slices of so many bytes at most, or of one row.

    Work on texts may take many times their memory, and a chunk of long ones has much of it.
    """
    if not len(text):
        return
    bounds: npt.NDArray[np.int32]
    bounds = np.frombuffer(text.buffers()[1], np.int32)[text.offset :][: len(text) + 1]
    start = 0
    while start < len(text):
        most = int(np.searchsorted(bounds, int(bounds[start]) + num_bytes, side="right"))
        end = min(max(most - 1, start + 1), len(text))
        yield text.slice(start, end - start)
        start = end


def written_label(value: object) -> str | None:
    """Write a label of JSON or Parquet as text, each word of a list after LIST_MARK."""
    if isinstance(value, list):
        return LIST_MARK + LIST_MARK.join(plain_text(word) or "" for word in value)
    return plain_text(value)


class Source(ABC):
    """A data file that can be read in chunks, any number of times."""

    unit: ClassVar[str] = "line"
    """What rows are counted in when one is complained of."""
    chunk_bytes: ClassVar[int] = 4 << 20
    chunk_rows: ClassVar[int] = 1 << 14

    def __init__(self, path: Path):
        self.path = path
        self.remedy = ""
        """What the user can do where a column is not there."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the columns that are there."""

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

    def require(self, wanted: Iterable[str], there: list[str]) -> None:
        """Refuse to go on without a column, or with two of its name."""
        for name in wanted:
            if there.count(name) > 1:
                raise DataError(f"column {name!r} appears more than once", path=self.path)
            if name in there:
                continue
            near = suggest(name, there)
            near = near if "did you mean" in near else ""
            shown = ", ".join(repr(c[:60]) for c in there)
            advice = near + self.remedy
            if len(there) == 1:  # which is near to each of the names in it
                advice = _doubt_separator(there[0]) or advice
            raise DataError(
                f"there is no column {name!r}; the file has {shown}{advice}", path=self.path
            )


def _doubt_separator(header: str) -> str:
    """Say what else may stand between the columns of a header line taken for one column."""
    for sign in ";|\t,":
        if sign in header:
            say = f"Say separator = {sign!r}, or --separator {sign!r}"
            return f"; is {sign!r} between its columns? {say}"
    return ""
