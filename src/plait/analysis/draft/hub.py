"""A data set of the Hub becomes Parquet files, one a split, that are read like any others.

Needs the `datasets` package, which is imported only here.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from plait.errors import DataError, UsageError, first_line

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "hf:"
BETWEEN = "|"
"""What stands between the labels of a row that has several."""


def fetch(name: str, folder: Path) -> list[Path]:
    """Write the splits of `hf:owner/name[:config]` as files named TASK-SPLIT.parquet."""
    source, _, config = name.removeprefix(PREFIX).partition(":")
    if not source:
        raise UsageError(f"{name!r} names no data set; write hf:owner/name or hf:owner/name:config")
    try:
        datasets: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise UsageError(
            f"{name} needs the datasets package: pip install 'plait[datasets]'"
        ) from error
    try:
        found = datasets.load_dataset(source, config or None)
    except Exception as error:  # whatever the Hub, a script or a file in it went wrong with
        raise DataError(f"{name} cannot be loaded: {first_line(error)}") from error
    folder.mkdir(parents=True, exist_ok=True)
    stem = re.sub(r"[^A-Za-z0-9]+", "-", source.rstrip("/").rpartition("/")[2]).strip("-")
    stem = f"{stem}-{config}" if config else stem
    return [_write(split, rows, stem, folder) for split, rows in found.items()]


def _write(split: str, rows: Any, stem: str, folder: Path) -> Path:
    """Write one split, its class numbers as the words for them."""
    columns = {}
    for name in rows.column_names:
        column = _as_column(list(rows[name]), rows.features[name])
        if column is not None:
            columns[name] = column
    if not columns:
        raise DataError(f"the {split} split of {stem} has no column of words or numbers")
    path = folder / f"{stem}-{split.replace('_', '-')}.parquet"
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


def _as_column(values: list[Any], feature: Any) -> Any:
    """Return a column of words or numbers; None for images, audio and the like."""
    words = getattr(feature, "names", None)
    if words:  # a ClassLabel; -1 says that there is none
        named = [words[v] if v is not None and 0 <= v < len(words) else None for v in values]
        return pa.array(named, pa.string())
    inner = getattr(getattr(feature, "feature", None), "names", None)
    if inner:
        return pa.array([BETWEEN.join(inner[i] for i in row or ()) for row in values], pa.string())
    if all(value is None or isinstance(value, str | int | float | bool) for value in values):
        try:
            return pa.array(values)
        except pa.ArrowInvalid:  # words and numbers mixed
            return pa.array([None if v is None else str(v) for v in values], pa.string())
    return None
