"""Files written whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from plait.data.cache import sync_folder
from plait.errors import FREE_ROOM, DiskFullError, RunError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; flush it and put it in place when all went well."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with disk_full_told(path):
            yield temporary
            put_in_place(temporary, path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def put_in_place(written: Path, path: Path) -> None:
    """Give a file that is whole its name, once all of it is on disk."""
    with written.open("rb+") as file:
        os.fsync(file.fileno())
    written.replace(path)
    sync_folder(path.parent)


def remove_leftovers(folder: Path) -> None:
    """Remove what a process killed while writing left behind; no other may be writing."""
    # Ours end in .tmp; the safetensors library's own begin with it.
    for pattern in (".*.tmp", ".tmp*"):
        for left in folder.glob(pattern):
            with suppress(OSError):
                left.unlink()


@contextmanager
def disk_full_told(path: Path) -> Iterator[None]:
    """Turn the system's word for a full or closed disk into a sentence about the file written."""
    try:
        yield
    except (OSError, SafetensorError) as error:  # the latter wraps what the system said
        number = error.errno if isinstance(error, OSError) else _errno_in(str(error))
        if number in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(path) from error
        if number in (errno.EROFS, errno.EACCES, errno.EPERM):
            said = os.strerror(number).lower()
            raise UsageError(
                f"{path} cannot be written ({said}): make its folder writable, or choose another"
            ) from error
        raise


def _errno_in(message: str) -> int | None:
    found = re.search(r"\(os error (\d+)\)", message)
    return int(found[1]) if found else None


def write_text(path: Path, text: str) -> None:
    """Write a small file whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def disk_full(path: Path) -> DiskFullError:
    """Say that a file or folder found no room, and what stands."""
    kept = "what was saved before is whole" if path.exists() else "nothing was written"
    return DiskFullError(f"the disk is full: {path} could not be written; {kept}. {FREE_ROOM}")


def hash_file(path: Path) -> str:
    """Return the sha256 of a run's file."""
    if not path.is_file():
        raise RunError(f"{path} is missing")
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
