"""A file of any size becomes a file of vectors, one a row and in its order."""

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
    """[rows, width]; what is not a number in a row without a text."""

CHUNK = 1024
"""Rows at a time, among which those of like length are found."""


@dataclass(frozen=True, slots=True)
class FileVectors:
    """A finished file of vectors."""

    path: Path
    num_rows: int
    width: int
    num_empty: int = 0
    """Rows that lack a text, and so a vector."""


# --- formats -----------------------------------------------------------------------------


class VectorFormat(Growing, ABC):
    """How rows with their vectors are written."""

    def __init__(self, schema: pa.Schema, num_rows: int, width: int):
        self.schema, self.num_rows, self.width = schema, num_rows, width
        """The rows' own columns; how many rows and numbers a row there will be."""
        self.name = "vector"
        """Of the vectors' column."""
        while self.name in schema.names:
            self.name += "_"

    @abstractmethod
    def encode(self, records: Records, vectors: Vectors) -> bytes:
        """Return some rows."""


class Npy(VectorFormat):
    """NumPy's own: the numbers alone, which `numpy.load(..., mmap_mode="r")` reads in place."""

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
    """An object a line: the row's own keys, and a list."""

    def encode(self, records: Records, vectors: Vectors) -> bytes:
        """Return a line for each row."""
        lines = []
        for row, vector in zip(records.rows(), vectors.tolist(), strict=True):
            # Nine digits are all that a number of 32 bits has.
            numbers = [float(f"{number:.9g}") for number in vector]
            row[self.name] = None if np.isnan(vector[0]) else numbers
            lines.append(json_line(row))
        return b"".join(lines)


class ParquetVectors(VectorFormat):
    """Parquet: the file's columns, and one of lists.

    Not lists of a fixed size: many readers cannot take those where one is missing.
    """

    @property
    def whole(self) -> pa.Schema:
        """The schema with the vectors."""
        return self.schema.append(pa.field(self.name, pa.list_(pa.float32())))

    def head(self) -> bytes:
        """Return the schema of a stream of Arrow's."""
        return bytes(self.whole.serialize())

    def encode(self, records: Records, vectors: Vectors) -> bytes:
        """Return the rows as one batch of the stream."""
        empty = np.isnan(vectors[:, 0]) if len(vectors) else np.zeros(0, dtype=bool)
        flat = pa.array(np.ascontiguousarray(vectors[~empty], dtype=np.float32).reshape(-1))
        ends = np.append(0, np.cumsum(np.where(empty, 0, self.width)))
        # A list is missing where it would begin at nothing.
        starts = pa.array(ends, pa.int32(), mask=np.append(empty, False))
        column = pa.ListArray.from_arrays(starts, flat)
        arrays = [*records.arrays(self.schema), column]
        return bytes(pa.record_batch(arrays, schema=self.whole).serialize())

    def finish(self, part: Path, path: Path) -> None:
        """Lay the stream out as Parquet."""
        lay_out(part, path, self.whole)


VECTOR_FORMATS: dict[str, type[VectorFormat]] = {
    "npy": Npy,
    "jsonl": JsonlVectors,
    "parquet": ParquetVectors,
}


def choose_vector_format(path: Path) -> str:
    """Return the name of a file's format, by its ending."""
    name = path.suffix.lower().removeprefix(".")
    if name in VECTOR_FORMATS:
        return name
    raise UsageError(f"{path} should end in .npy, .parquet or .jsonl, which vectors are written to")


# --- reading and embedding ---------------------------------------------------------------


def choose_column(model: SingleModel, names: Sequence[str]) -> str:
    """Choose which of a file's columns to embed: one that a task on single texts reads, or `text`.

    Whatever it is called, a file's only column is meant.
    """
    specs = [model.task(task).spec for task in model.tasks]
    read = {spec.text[0] for spec in specs if not spec.is_pair}
    for known in (read, {"text"}, set(names)):
        if len(found := known & set(names)) == 1:
            return found.pop()
    there = ", ".join(map(repr, names))
    raise UsageError(f"say which column to embed, with --column (from Python, text): {there}")


def embed_records(
    model: SingleModel,
    column: str,
    slices: Iterable[Records],
    *,
    width: int,
    normalize: bool = False,
) -> Iterator[tuple[Records, Vectors]]:
    """Embed one column of rows, in their order; `normalize` makes vectors of length 1."""
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
    """Return how many numbers a vector has."""
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

    `text` is the column; the others are as `plait.inference.answers.stream.answer_file` has them.
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
