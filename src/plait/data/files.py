"""A data file's name decides how it is read.

Known: separated text (.csv, .tsv, or any other name), JSON lines (.jsonl, .ndjson) and
Parquet (.parquet), each plain or compressed (.gz, .xz).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.data.folders import COMPRESSED
from plait.data.jsonlines import JsonLines
from plait.data.parquet import Parquet
from plait.data.separated import Separated
from plait.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

    from plait.data.source import Source


def open_source(path: Path, *, separator: str | None = None, quoting: bool = True) -> Source:
    """Return the reader for a file, chosen by its name."""
    suffixes = [s.lower() for s in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    kind = suffixes[-1] if suffixes else ""
    if kind == ".parquet":
        return Parquet(path)
    if kind in (".jsonl", ".ndjson"):
        return JsonLines(path)
    if kind == ".json":
        raise DataError(
            "JSON must have one object per line, in a file that ends in .jsonl", path=path
        )
    return Separated(path, separator, quoting)
