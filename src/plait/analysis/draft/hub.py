"""Download a data set of the Hugging Face Hub as Parquet files, one per split.

Needs the `datasets` package, which is imported only here.
"""

from __future__ import annotations

import importlib
import re
from typing import TYPE_CHECKING, Any

from plait.errors import DataError, UsageError, first_line

if TYPE_CHECKING:
    from pathlib import Path

PREFIX = "hf:"


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
    except Exception as error:  # whatever went wrong at the Hub, in a script or in a file
        raise DataError(f"{name} cannot be loaded: {first_line(error)}") from error
    folder.mkdir(parents=True, exist_ok=True)
    words = [source.rstrip("/").rpartition("/")[2], *filter(None, [config])]
    stem = "-".join(re.sub(r"[^A-Za-z0-9]+", "-", word).strip("-") for word in words)
    paths = []
    for split, rows in found.items():
        paths.append(folder / f"{stem}-{split.replace('_', '-')}.parquet")
        _with_label_names(rows).to_parquet(paths[-1])
    return paths


def _with_label_names(rows: Any) -> Any:
    """Replace class numbers by their names, and drop columns that are no words or numbers."""
    names = {}
    for column, feature in rows.features.items():
        inner = getattr(feature, "feature", feature)  # of a list
        if labels := getattr(inner, "names", None):
            names[column] = labels
        elif not re.match(r"(large_)?string|u?int|float|bool", getattr(inner, "dtype", "")):
            rows = rows.remove_columns([column])

    def name(row: dict[str, Any]) -> dict[str, Any]:
        return {column: _name(row[column], labels) for column, labels in names.items()}

    return rows.map(name, remove_columns=list(names)) if names else rows


def _name(value: Any, labels: list[str]) -> Any:
    """Return the name of a class number, or the names of several; None for -1, no label."""
    if isinstance(value, list):
        return [labels[number] for number in value]
    return labels[value] if value is not None and 0 <= value < len(labels) else None
