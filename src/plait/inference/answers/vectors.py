"""Embed a file of any size into a file with one vector per row, in order."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from plait import __version__
from plait.data import RecordFile, open_source
from plait.data.storage import hash_file
from plait.errors import UsageError
from plait.inference.answers.formats import Growing, json_line, lay_out
from plait.inference.answers.journal import Journal
from plait.inference.answers.stream import check_paths, interruptible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from plait.data import Records
    from plait.inference.answers.stream import Progress
    from plait.inference.predictor import SingleModel

    Vectors = NDArray[np.float32]
    """[rows, width]; NaN for rows without a text."""

CHUNK = 1024
"""Rows per chunk, which are sorted by length into batches."""


@dataclass(frozen=True, slots=True)
class FileVectors:
    """A finished file of vectors."""

    path: Path
    num_rows: int
    width: int
    num_empty: int = 0
    """Rows without a text, which have no vector."""


# --- formats -----------------------------------------------------------------------------


class VectorFormat(Growing, ABC):
    """A format of rows with vectors."""

    def __init__(self, schema: pa.Schema, num_rows: int, width: int):
        self.schema, self.num_rows, self.width = schema, num_rows, width
        """Set the columns of the input, the number of rows and the width of the vectors."""
        self.name = "vector"
        """Of the vectors' column."""
        while self.name in schema.names:
            self.name += "_"

    @abstractmethod
    def encode(self, records: Records, vectors: Vectors) -> bytes:
        """Return some rows."""


class Npy(VectorFormat):
    """NumPy's format, without the columns of the input; supports `numpy.load(mmap_mode="r")`."""

    def head(self) -> bytes:
        """Return the array's type and shape."""
        file = io.BytesIO()
        shape = (self.num_rows, self.width)
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": False, "shape": shape}
        )
        return file.getvalue()

    def encode(self, records: Records, vectors: Vectors) -> bytes:  # noqa: ARG002 - not its rows
        """Return the numbers."""
        return vectors.astype("<f4").tobytes()


class JsonlVectors(VectorFormat):
    """One JSON object per line: the row's keys, and the vector as a list."""

    def encode(self, records: Records, vectors: Vectors) -> bytes:
        """Return a line for each row."""
        lines = []
        for row, vector in zip(records.rows(), vectors.tolist(), strict=True):
            # Nine digits are enough to write a 32-bit float exactly.
            numbers = [float(f"{number:.9g}") for number in vector]
            row[self.name] = None if np.isnan(vector[0]) else numbers
            lines.append(json_line(row))
        return b"".join(lines)


class ParquetVectors(VectorFormat):
    """Parquet: the columns of the input, and a column of lists.

    The lists are not fixed-size, because many readers do not support missing values there.
    """

    @property
    def whole(self) -> pa.Schema:
        """Set the columns, including the vectors."""
        return self.schema.append(pa.field(self.name, pa.list_(pa.float32())))

    def head(self) -> bytes:
        """Return the schema of the Arrow stream."""
        return bytes(self.whole.serialize())

    def encode(self, records: Records, vectors: Vectors) -> bytes:
        """Return the rows as one record batch of the stream."""
        empty = np.isnan(vectors[:, 0]) if len(vectors) else np.zeros(0, dtype=bool)
        flat = pa.array(np.ascontiguousarray(vectors[~empty], dtype=np.float32).reshape(-1))
        ends = np.append(0, np.cumsum(np.where(empty, 0, self.width)))
        # A list is missing where it would begin at nothing.
        starts = pa.array(ends, pa.int32(), mask=np.append(empty, False))
        column = pa.ListArray.from_arrays(starts, flat)
        arrays = [*records.arrays(self.schema), column]
        return bytes(pa.record_batch(arrays, schema=self.whole).serialize())

    def finish(self, part: Path, path: Path) -> None:
        """Convert the stream to Parquet."""
        lay_out(part, path, self.whole)


VECTOR_FORMATS: dict[str, type[VectorFormat]] = {
    "npy": Npy,
    "jsonl": JsonlVectors,
    "parquet": ParquetVectors,
}


def choose_vector_format(path: Path) -> str:
    """Return the format of a file, chosen by its ending."""
    name = path.suffix.lower().removeprefix(".")
    if name in VECTOR_FORMATS:
        return name
    raise UsageError(f"{path} should end in .npy, .parquet or .jsonl")


# --- reading and embedding ---------------------------------------------------------------


def choose_column(model: SingleModel, names: Sequence[str]) -> str:
    """Return the column to embed: one that a task on single texts reads, or `text`.

    If the file has a single column, it is that column.
    """
    specs = [model.task(task).spec for task in model.tasks]
    read = {spec.text[0] for spec in specs if not spec.is_pair}
    for known in (read, {"text"}, set(names)):
        if len(found := known & set(names)) == 1:
            return found.pop()
    there = ", ".join(map(repr, names))
    raise UsageError(f"name the column to embed with --column (in Python: text): {there}")


def embed_records(
    model: SingleModel,
    column: str,
    slices: Iterable[Records],
    *,
    width: int,
    normalize: bool = False,
) -> Iterator[tuple[Records, Vectors]]:
    """Embed one column of rows, in order; with `normalize`, vectors have length 1."""
    for records in slices:
        texts = [text for (text,) in records.examples([column])]
        full = [i for i, text in enumerate(texts) if text.strip()]
        vectors = np.full((len(texts), width), np.nan, dtype=np.float32)
        if full:
            found = model.embed([texts[i] for i in full])
            if normalize:
                found = found / np.linalg.norm(found, axis=1, keepdims=True)
            vectors[full] = found
        yield records, vectors


def count_width(model: SingleModel) -> int:
    """Return the width of the vectors."""
    return int(model.embed(["a"]).shape[1])


def embed_file(
    model: SingleModel,
    path: Path,
    out: Path,
    *,
    text: str | None = None,
    form: str | None = None,
    normalize: bool = False,
    separator: str | None = None,
    quoting: bool = True,
    skip_empty: bool = False,
    resume: bool = False,
    command: str = "the same call and resume=True",
    reading: Progress | None = None,
    progress: Progress | None = None,
) -> FileVectors:
    """Embed every row of a file into another one.

    `text` is the column; for the other parameters, see
    `plait.inference.answers.stream.answer_file`.
    """
    check_paths(path, [out], resume=resume)
    shape = form or choose_vector_format(out)
    names = open_source(path, separator=separator, quoting=quoting).names()
    column = text or choose_column(model, names)
    ids = ["id", *(task.id for task in model.config.tasks.values() if task.id)]
    file = RecordFile(
        path, [column], ids, separator=separator, quoting=quoting, keep_empty=skip_empty
    )
    survey = file.survey(reading)
    width = count_width(model)
    written = VECTOR_FORMATS[shape](survey.schema, survey.num_rows, width)
    settings = {
        "input": {"name": path.name, "sha256": hash_file(path)},
        "read_as": {"separator": separator, "quoting": quoting, "skip_empty": skip_empty},
        "model": model.fingerprint(),
        "vectors": {"column": column, "normalize": normalize, "format": shape},
        "chunk": CHUNK,
        "plait": __version__,
    }
    journal = Journal({out: written}, settings)
    with journal.opened(resume=resume), interruptible(journal, survey.num_rows, command):
        slices = () if journal.is_written else file.slices(CHUNK, journal.rows)
        embedded = embed_records(model, column, slices, width=width, normalize=normalize)
        for records, vectors in embedded:
            journal.write({out: written.encode(records, vectors)}, len(records), {})
            if progress is not None:
                progress("embedding", journal.rows, survey.num_rows)
        journal.finish()
    return FileVectors(out, survey.num_rows, width, survey.num_empty)
