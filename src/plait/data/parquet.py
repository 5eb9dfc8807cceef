"""Parquet becomes chunks of columns."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from plait.data.source import Chunk, Columns, Source
from plait.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator


MOST_BYTES = 16 << 20
"""Bytes that a chunk of ordinary rows has at most."""


class Parquet(Source):
    """Parquet; what is compressed as a whole is unpacked to a temporary file first."""

    unit = "row"

    def names(self) -> list[str]:
        """Return the names in the schema."""
        with self._open_parquet() as file:
            return list(file.schema_arrow.names)

    def chunks(self, columns: Columns) -> Iterator[Chunk]:
        """Read the columns asked for, in order."""
        with self._open_parquet() as file:
            schema = file.schema_arrow
            self.require(columns, schema.names)
            for name in columns.text:
                self._require_text(name, schema.field(name).type)
            size, total, done = self.path.stat().st_size, file.metadata.num_rows, 0
            every = schema.names if columns.whole else []
            self.require(every, schema.names)
            names = [*columns, *every]
            wanted = list(dict.fromkeys(names))
            for batch in _batches(file, self._num_rows(file, wanted), wanted):
                numbers = np.arange(done, done + len(batch))
                done += len(batch)
                arrays = [batch.column(name) for name in names]
                chunk = Chunk(numbers, arrays, size * done // total)
                yield chunk.fold(every) if columns.whole else chunk

    def _num_rows(self, file: Any, names: list[str]) -> int:
        """Return how many rows to read at once: fewer than usual of very long ones."""
        found = file.metadata
        groups = [found.row_group(i) for i in range(found.num_row_groups)]
        every = (group.column(i) for group in groups for i in range(group.num_columns))
        # A column of lists or structs has a dot and more behind its name.
        own = (c for c in every if c.path_in_schema.split(".")[0] in names)
        size: int = sum(column.total_uncompressed_size for column in own)
        fit: int = MOST_BYTES * found.num_rows // max(size, 1)
        return min(self.chunk_rows, max(1, fit))

    @contextmanager
    def _open_parquet(self) -> Iterator[Any]:
        with self._open() as (stream, raw), tempfile.TemporaryFile() as unpacked:
            if stream is not raw:  # Parquet is read from its end
                shutil.copyfileobj(stream, unpacked, self.chunk_bytes)
            try:
                yield pyarrow.parquet.ParquetFile(raw if stream is raw else unpacked)
            except pa.ArrowException as error:
                raise DataError(f"is not a valid Parquet file: {error}", path=self.path) from error

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


def _batches(file: Any, size: int, names: list[str]) -> Iterator[Any]:
    """Yield rows in chunks of a fixed size, independent of the row groups.

    As `iter_batches` does for all groups at once; but that holds the whole file in the end.
    """
    waiting, count = [], 0
    for group in range(file.num_row_groups):
        for batch in file.iter_batches(size, row_groups=[group], columns=names):
            while len(batch):
                waiting.append(batch.slice(0, size - count))
                batch, count = batch.slice(size - count), count + len(waiting[-1])
                if count == size:
                    yield _join(waiting)
                    waiting, count = [], 0
    if waiting:
        yield _join(waiting)


def _join(batches: list[Any]) -> Any:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
