"""A file becomes a hash of its contents, by which an edit or damage is noticed.

Large files are read for it once: their hashes are noted in the cache, beside what the system says
of the file (size, times of its last change, number). Whatever writes to a file changes those.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from plait.data.folders import cache_root

if TYPE_CHECKING:
    from collections.abc import Callable

LARGE = 64 << 20
"""Bytes from which on a file's hash is noted: smaller ones take less time to read than to note."""

SETTLED_S = 2.0
"""Seconds since its last change before a file's hash is noted: two changes within one tick of the
file system's clock look like one."""


def new_digest() -> hashlib.blake2b:
    """Return the hash of nothing, to be fed with contents."""
    return hashlib.blake2b(digest_size=16)


def file_digest(path: Path, start: int = 0) -> str:
    """Return the hash of a file's contents, from a byte on."""
    stat = path.stat()
    if stat.st_size < LARGE:
        return _read(path, start)
    seen = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev, start]
    name = hashlib.blake2b(os.fsencode(path.resolve()), digest_size=16).hexdigest()
    return _noted(cache_root() / "digests" / name, seen, lambda: _read(path, start))


def _read(path: Path, start: int) -> str:
    with path.open("rb") as file:
        file.seek(start)
        return hashlib.file_digest(file, new_digest).hexdigest()


def _noted(note: Path, seen: list[int], read: Callable[[], str]) -> str:
    """Return the hash that was noted of a file that looks like this, or read and note it."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(note.read_bytes())
        if known["seen"] == seen:
            return str(known["digest"])
    digest = read()
    changed = max(seen[1], seen[2]) / 1e9
    if time.time() - changed > SETTLED_S:
        with suppress(OSError):  # an unwritable cache is reported elsewhere
            note.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=note.parent, delete=False) as file:
                json.dump({"seen": seen, "digest": digest}, file)
            Path(file.name).replace(note)
    return digest
