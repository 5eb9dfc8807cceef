"""Lines of JSON become chunks of columns."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from plait.data.source import BadRow, Chunk, Columns, Source, written_label
from plait.errors import suggest
from plait.tasks.reading import plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator


NUM_NAMED = 1000
"""Number of lines that are read to find the keys of a file."""


class JsonLines(Source):
    """One JSON object per line; blank lines are skipped."""

    def names(self) -> list[str]:
        """Return the keys of the first objects, since one need not have all."""
        found: dict[str, None] = {}
        size = 0
        with self._open() as (stream, _):
            for line in islice(stream, NUM_NAMED):
                size += len(line)
                with suppress(ValueError, RecursionError):
                    record = json.loads(line.decode("utf-8-sig"))
                    if isinstance(record, dict):
                        found |= dict.fromkeys(record)
                if size > self.chunk_bytes and found:
                    break
        return list(found)

    def chunks(self, columns: Columns) -> Iterator[Chunk]:
        """Read the keys asked for, in order."""
        with self._open() as (stream, raw):
            numbers: list[int] = []
            rows: list[list[str | None]] = []
            lines: list[bytes] = []
            bad: list[BadRow] = []
            size = 0

            def chunk() -> Chunk:
                whole = pa.array(lines, pa.string()) if columns.whole else None
                found = _columns(rows, columns)
                return Chunk(np.array(numbers, np.int64), found, raw.tell(), bad, whole)

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
                if columns.whole:
                    lines.append(line)
                size += len(line)
                if size > self.chunk_bytes:
                    yield chunk()
                    numbers, rows, lines, bad, size = [], [], [], [], 0
            if rows or bad:
                yield chunk()


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
        if name not in record and not (columns.may_lack_text and name in columns.text):
            near = suggest(name, record)
            near = near if "did you mean" in near else ""
            there = ", ".join(map(repr, record))
            sentence = f"there is no key {name!r}; the line has {there}{near}"
            return BadRow(number, "missing key", sentence)
        value = record.get(name)
        if name in columns.text and value is not None and not isinstance(value, str):
            sentence = f"{name!r} is {json.dumps(value)[:40]}, not a text"
            return BadRow(number, "text is not a string", sentence)
        row.append(text := (written_label if name in columns.labels else plain_text)(value))
        if text is not None and any("\ud800" <= c <= "\udfff" for c in text):
            return BadRow(number, "not UTF-8", f"{name!r} holds half a surrogate pair")
    return row
