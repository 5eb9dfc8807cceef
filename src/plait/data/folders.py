"""Settings and environment become folders: the data root, the embedded sample, the cache."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plait.errors import DataError

if TYPE_CHECKING:
    from plait.config import DataConfig

SAMPLE = "@sample"
"""The data root that stands for the sample inside the package."""


def sample_root() -> Path:
    """Return the folder of the sample that comes with plait."""
    return Path(__file__).parent / "sample"


def find_root(config: DataConfig, given: str | None) -> Path | None:
    """Return the data root: `given` (--data), PLAIT_DATA, the recipe's, or None for none set.

    With None, files are relative to the current folder. A recipe on the sample inside the
    package stays there whatever PLAIT_DATA says.
    """
    if config.root == SAMPLE and not given:
        return sample_root()
    choices = (
        ("--data", given),
        ("PLAIT_DATA", os.environ.get("PLAIT_DATA")),
        ("data.root", config.root),
    )
    for origin, choice in choices:
        if not choice:
            continue
        if choice == SAMPLE:
            return sample_root()
        root = Path(choice).expanduser()
        if not root.is_dir():
            raise DataError(
                f"there is no data folder {root} (set by {origin}); "
                f"give another with --data DIR or PLAIT_DATA{_hint(config.hint)}"
            )
        return root
    return None


def find_file(path: str, root: Path | None, hint: str = "") -> Path:
    """Return the place of a recipe's data file, which must be there."""
    folder = root if root is not None else Path()
    full = folder / Path(path).expanduser()
    if path.startswith(f"{SAMPLE}/"):  # of a task whose own recipe has the sample for its root
        full = sample_root() / path.removeprefix(f"{SAMPLE}/")
    if full.is_file():
        return full
    what = "is a folder, not a file" if full.is_dir() else "is not there"
    # resolve(): '.' alone would not tell the user which folder was searched
    raise DataError(
        f"data file {path} {what} (looked in {folder.resolve()}); "
        f"name the folder that holds it with --data DIR or PLAIT_DATA{_hint(hint)}"
    )


def _hint(hint: str) -> str:
    return f"; {hint}" if hint else ""


def cache_root() -> Path:
    """Return plait's cache folder: PLAIT_CACHE, or the platform's own place for caches."""
    if own := os.environ.get("PLAIT_CACHE"):
        return Path(own).expanduser()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or str(Path.home() / "AppData" / "Local")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "plait"
