"""A lock on a file: one process of a machine does the work, the others see how far it is.

The system lets go of a lock whose process has ended, however it ended, so that none stays behind.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Tell = Callable[[int, int, int], None]
    """Called with rows done, bytes done and bytes in all."""

POLL_S = 0.2
"""Seconds between two looks at a lock that another process has."""

BEAT_S = 1.0
"""Seconds between two notes of how far the work is."""

PATIENCE_S = 300.0
"""Seconds without such a note after which whoever has the lock is taken to hang."""


_held: ContextVar[frozenset[Path]] = ContextVar("_held", default=frozenset())
"""What this thread, or task, has its turn at."""


def lock(file: IO[Any]) -> bool:
    """Keep a file to this process for as long as it is open; say whether no other had it."""
    if os.name != "posix":  # no such lock elsewhere
        return True
    import fcntl

    with suppress(OSError):  # some network drives have no locks, either
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def is_taken(path: Path) -> bool:
    """Say whether another process has its turn at some work just now."""
    with suppress(OSError), path.open("r+b") as file:
        return not lock(file)
    return False


@contextmanager
def turn(path: Path, tell: Tell | None = None) -> Iterator[Tell]:
    """Acquire the lock at `path`; yield a function that publishes this process's progress.

    While another process holds the lock, its progress is passed to `tell`. The work may be done
    by the time the lock is acquired: check first. The work must be safe to do twice at once,
    because the lock is skipped on file systems without locks and when its holder hangs. It is also
    skipped if this process already holds it, since a progress callback may call this again.
    """
    if path in _held.get():
        yield tell or _say_nothing
        return
    while True:
        with path.open("a+b") as file:
            if not _wait(file, tell):
                yield tell or _say_nothing
                return
            if not _is_at(file, path):  # its owner removed it, and a third may have made another
                continue
            before = _held.set(_held.get() | {path})
            try:
                yield _Notes(file, tell)
            finally:
                _held.reset(before)
                with suppress(PermissionError):  # Windows keeps what is open; it is swept later
                    path.unlink(missing_ok=True)
            return


def _wait(file: IO[bytes], tell: Tell | None) -> bool:
    """Take the lock, or say that whoever has it hangs."""
    began = time.time()
    while not lock(file):
        if time.time() - max(began, os.fstat(file.fileno()).st_mtime) > PATIENCE_S:
            return False
        file.seek(0)
        numbers = file.read().split()
        if tell is not None and len(numbers) == 3:
            tell(*map(int, numbers))
        time.sleep(POLL_S)
    return True


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


class _Notes:
    """Tells how far the work is, here and, through the file, to those who wait."""

    def __init__(self, file: IO[bytes], tell: Tell | None):
        self._file, self._tell = file, tell
        self._last = 0.0

    def __call__(self, rows: int, done: int, total: int) -> None:
        if self._tell is not None:
            self._tell(rows, done, total)
        if time.monotonic() - self._last >= BEAT_S:
            self._last = time.monotonic()
            self._file.truncate(0)  # whoever reads now finds nothing, and looks again
            self._file.write(f"{rows} {done} {total}".encode())
            self._file.flush()


def _say_nothing(*_: int) -> None:
    pass
