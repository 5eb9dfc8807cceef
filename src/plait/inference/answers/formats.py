"""Formats of predictions: words, CSV, TSV, JSON lines and Parquet.

Bytes are only appended, so that an interrupted file can be continued. Parquet cannot be appended
to: until it is complete, it is a stream in Arrow's IPC format.
"""

from __future__ import annotations

import csv
import io
import json
import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from plait.data.records import in_text
from plait.data.separated import Separated
from plait.data.storage import atomic_path, put_in_place
from plait.errors import UsageError, show_controls

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from plait.data import Records
    from plait.data.source import Source
    from plait.inference.answers.columns import AnswerColumns
    from plait.types import Prediction

    Answers = dict[str, list[Prediction | None]]
    """Every task's predictions for the same rows; None for rows without a text."""

ROW_GROUP = 1 << 16
"""Rows per row group of Parquet, which are in memory at once."""


class Growing:
    """A file that is written by appending."""

    def head(self) -> bytes:
        """Return the bytes before the first row."""
        return b""

    def finish(self, part: Path, path: Path) -> None:
        """Convert the written bytes to the final file."""
        put_in_place(part, path)


class Format(Growing, ABC):
    """A format of rows with predictions."""

    def __init__(self, schema: pa.Schema, columns: Sequence[AnswerColumns]):
        self.schema, self.columns = schema, columns
        """Set the columns of the input, and those of each task."""

    @abstractmethod
    def encode(self, records: Records, answers: Answers) -> bytes:
        """Return some rows."""


class Words(Format):
    """Texts and predictions in words, for the terminal."""

    def encode(self, records: Records, answers: Answers) -> bytes:
        """Return the texts of a row, and below them a line for each task."""
        lines = []
        for i, texts in enumerate(records.examples(self.columns[0].text)):
            lines.append(" | ".join(texts))
            for column in self.columns:
                answer = answers[column.task][i]
                if answer is None:
                    lines.append(f"  {column.task}: no prediction, because a text is empty")
                    continue
                unsure = ", for review" if column.is_unsure(answer) else ""
                lines.append(f"  {column.task}: {in_words(answer)}{unsure}")
                if column.probabilities:
                    pairs = zip(column.spec.labels, answer.probabilities, strict=True)
                    lines += [f"    {p:6.1%}  {label}" for label, p in pairs]
        return "".join(f"{show_controls(line)}\n" for line in lines).encode("utf-8", "replace")


class Csv(Format):
    """Comma-separated text."""

    separator = ","

    def head(self) -> bytes:
        """Return the header line."""
        return self._write([[*self.schema.names, *(n for c in self.columns for n in c.types())]])

    def encode(self, records: Records, answers: Answers) -> bytes:
        """Return a line for each row; probabilities and scores have four decimals."""
        lines = []
        for i, row in enumerate(records.rows()):
            line = [_cell(row.get(name)) for name in self.schema.names]
            for column in self.columns:
                cells = column.cells(answers[column.task][i])
                line += [f"{c:.4f}" if isinstance(c, float) else _cell(c) for c in cells]
            lines.append(line)
        return self._write(lines)

    def _write(self, lines: list[list[str]]) -> bytes:
        file = io.StringIO()
        style: Any = {"delimiter": self.separator, "lineterminator": "\n"}
        plain, quoted = csv.writer(file, **style), csv.writer(file, quoting=csv.QUOTE_ALL, **style)
        for line in lines:
            # Older Pythons do not quote a CR, which readers take for the end of the line.
            (quoted if any("\r" in cell for cell in line) else plain).writerow(line)
        return file.getvalue().encode("utf-8")


class Tsv(Csv):
    """Tab-separated text."""

    separator = "\t"


class Jsonl(Format):
    """One JSON object per line: the row's keys, and an object for each task."""

    def encode(self, records: Records, answers: Answers) -> bytes:
        """Return a line for each row."""
        lines = []
        for i, row in enumerate(records.rows()):
            for column in self.columns:
                row[column.name] = column.table(answers[column.task][i])
            lines.append(json_line(row))
        return b"".join(lines)


class Parquet(Format):
    """Parquet, written as an Arrow stream first."""

    def __init__(self, schema: pa.Schema, columns: Sequence[AnswerColumns]):
        super().__init__(schema, columns)
        added = {name: kind for column in columns for name, kind in column.types().items()}
        self.whole = pa.schema([*schema, *(pa.field(n, kind) for n, kind in added.items())])

    def head(self) -> bytes:
        """Return the stream's schema."""
        return bytes(self.whole.serialize())

    def encode(self, records: Records, answers: Answers) -> bytes:
        """Return the rows as one record batch of the stream."""
        arrays = records.arrays(self.schema)
        for column in self.columns:
            rows = [column.cells(answer) for answer in answers[column.task]]
            for i, kind in enumerate(column.types().values()):  # there may be no rows
                arrays.append(pa.array([cells[i] for cells in rows], kind))
        return bytes(pa.record_batch(arrays, schema=self.whole).serialize())

    def finish(self, part: Path, path: Path) -> None:
        """Convert the stream to Parquet."""
        lay_out(part, path, self.whole)


def lay_out(part: Path, path: Path, schema: pa.Schema) -> None:
    """Convert an Arrow stream to Parquet, and remove the stream."""
    with (
        part.open("rb") as file,
        pa.ipc.open_stream(file) as stream,
        atomic_path(path) as temporary,
        pa.parquet.ParquetWriter(temporary, schema) as writer,
    ):
        waiting: list[Any] = []
        for batch in stream:
            waiting.append(batch)
            if sum(map(len, waiting)) >= ROW_GROUP:
                writer.write_table(pa.Table.from_batches(waiting), ROW_GROUP)
                waiting = []
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting), ROW_GROUP)
    part.unlink()


FORMATS: dict[str, type[Format]] = {
    "words": Words,
    "csv": Csv,
    "tsv": Tsv,
    "jsonl": Jsonl,
    "parquet": Parquet,
}


def choose_format(path: Path) -> str:
    """Return the format of a file, chosen by its ending."""
    name = path.suffix.lower().removeprefix(".")
    if name not in FORMATS or name == "words":
        raise UsageError(f"{path} should end in .csv, .tsv, .jsonl or .parquet")
    return name


def choose_separated(source: Source) -> str:
    """Return tsv if the file is separated by tabs, else csv."""
    source.names()  # detects the separator
    return "tsv" if isinstance(source, Separated) and source.separator == "\t" else "csv"


def in_words(answer: Prediction) -> str:
    """Return a prediction as text: its label or labels, with the probability in percent."""
    if isinstance(answer.value, tuple) and answer.words:
        each = zip(answer.words, answer.word_probabilities, strict=True)
        return ", ".join(f"{word} ({chance:.0%})" for word, chance in each)
    sure = "" if answer.confidence is None else f" ({answer.confidence:.0%})"
    return f"{answer.label}{sure}"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return repr(value)
    return in_text(value) or ""


def json_line(row: dict[str, Any]) -> bytes:
    """Return a row as a line of JSON; values that JSON lacks are converted."""
    try:
        text = json.dumps(row, ensure_ascii=False, allow_nan=False, default=str)
        return f"{text}\n".encode()
    except UnicodeEncodeError:  # half a surrogate pair, which only an escape can hold
        return f"{json.dumps(row, default=str)}\n".encode()
    except ValueError:  # nan or infinity, which JSON does not have
        return json_line(_finite(row))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
