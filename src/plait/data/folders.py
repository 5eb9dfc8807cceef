"""Settings and environment become folders and the files in them: data root, sample, cache."""

from __future__ import annotations

import os
import sys
from fnmatch import fnmatchcase
from glob import glob
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

from plait.errors import DataError

if TYPE_CHECKING:
    from plait.config import DataConfig

SAMPLE = "@sample"
"""The data root that stands for the sample inside the package."""

ENDINGS = (".parquet", ".jsonl", ".ndjson", ".csv", ".tsv")
"""Endings of the files that a folder stands for."""

COMPRESSED = (".gz", ".xz")
"""Endings that may follow those."""


_SIGNS = frozenset("*?[")
"""Of a pattern."""


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


def find_files(path: str, root: Path | None, hint: str = "") -> dict[str, Path]:
    """Return the places of the data files that a recipe's path stands for, in order.

    Itself, if it is a file; the data files in a folder and below; the files that fit a pattern
    (`*`, `?`, `[...]`, and `**` for folders of any depth). Several are in the order of their names.
    The keys are the files as a recipe would name them one by one. None at all is an error.
    """
    folder, own, prefix = root if root is not None else Path(), path, ""
    if path.startswith(f"{SAMPLE}/"):  # of a task whose own recipe has the sample for its root
        folder, own, prefix = sample_root(), path.removeprefix(f"{SAMPLE}/"), f"{SAMPLE}/"
    full = folder / Path(own).expanduser()
    if full.is_file():
        return {path: full}
    what = f"data file {path} is not there"
    names: list[str] = []
    if full.is_dir():
        what = f"folder {path} holds no data files ({', '.join(ENDINGS)})"
        names = _in_folder(full, own)
    elif _SIGNS & set(own):
        # A file's name may hold such a sign, too: hence only where there is no such file.
        what = f"no data file fits {path}"
        names = _fitting(str(Path(own).expanduser()), folder)
    if names:
        return {prefix + name: folder / name for name in sorted(names)}
    # resolve(): '.' alone would not tell the user which folder was searched
    raise DataError(
        f"{what} (looked in {folder.resolve()}); "
        f"name the folder that holds it with --data DIR or PLAIT_DATA{_hint(hint)}"
    )


def would_find(path: str, place: Path) -> bool:
    """Say whether `find_files` would find a file at some place, were there one.

    `path` is a folder or a pattern and relative to the current folder; links are followed.
    """
    own = Path(path).expanduser()
    parts, wants_notes = own.absolute().parts, _is_note(own)
    if own.is_dir():
        parts, wants_notes = (*parts, "**", f"*{place.suffix}"), False
    num_fixed = len([*takewhile(lambda part: not _SIGNS & set(part), parts)])
    folder, place = Path(*parts[:num_fixed]).resolve(), place.resolve()
    if not place.is_relative_to(folder):
        return False
    name = place.relative_to(folder)
    return (wants_notes or not _is_note(name)) and _fits(name.parts, parts[num_fixed:])


def _fits(name: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Compare part by part, as glob does; `**` is any number of folders."""
    if not pattern or not name:
        return pattern in ((), ("**",)) and not name
    if pattern[0] == "**":
        return _fits(name, pattern[1:]) or _fits(name[1:], pattern)
    return fnmatchcase(name[0], pattern[0]) and _fits(name[1:], pattern[1:])


def _in_folder(folder: Path, path: str) -> list[str]:
    """Return the data files in a folder and below, all of one format, as a recipe names them."""
    kinds: dict[str, list[str]] = {}
    for place in folder.rglob("*"):
        name = place.relative_to(folder)
        endings = [suffix.lower() for suffix in name.suffixes]
        kind = next((ending for ending in reversed(endings) if ending not in COMPRESSED), "")
        if kind in ENDINGS and place.is_file() and not _is_note(name):
            kinds.setdefault(kind, []).append((Path(path).expanduser() / name).as_posix())
    if len(kinds) > 1:
        one = f"{path.rstrip('/')}/*{min(kinds)}"
        raise DataError(
            f"folder {path} holds {' and '.join(sorted(kinds))} files; "
            f"choose one format with a pattern: {one!r}"
        )
    return [name for names in kinds.values() for name in names]


def _fitting(pattern: str, folder: Path) -> list[str]:
    """Return the files that fit a pattern, as a recipe names them."""
    # Path.glob knows no absolute patterns.
    found = map(Path, glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207
    wants_notes = _is_note(Path(pattern))
    return [
        name.as_posix()
        for name in found
        if (folder / name).is_file() and (wants_notes or not _is_note(name))
    ]


def _is_note(name: Path) -> bool:
    """Say whether a file is what writers of folders leave behind: _SUCCESS, .part-0.parquet.crc."""
    return any(part.startswith((".", "_")) and part != ".." for part in name.parts)


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
