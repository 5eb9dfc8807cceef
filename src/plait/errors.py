"""Every error plait raises on purpose, each one sentence a user can act on.

PlaitError                     anything below; the command line prints it without a traceback
├── UsageError                 the user can mend it (exit code 2)
│   ├── RecipeError            a key, a value or a name in a recipe
│   ├── DataError              a file or a row of one
│   │   └── NoRowsError        files that have no rows for a task
│   ├── EncoderError           an encoder that is missing, unreachable or not what it should be
│   └── RunError               a run folder that exists already, is missing or does not match
├── ResourceError              the machine ran out of something (exit code 1)
│   ├── DeviceMemoryError
│   ├── DiskFullError
│   └── WorkerLostError        another of the processes that train together is gone
├── ToldElsewhereError         another of them has said what is wrong
└── Interrupted                stopped by the user, everything saved (exit code 130)
"""

from __future__ import annotations

import errno
from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class PlaitError(Exception):
    """Base of every error raised on purpose."""

    exit_code = 1


class UsageError(PlaitError):
    """Something the user can mend."""

    exit_code = 2


class RecipeError(UsageError):
    """A recipe says something plait cannot do."""


class DataError(UsageError):
    """A data file, or a row of it, cannot be used."""

    def __init__(self, message: str, *, path: Path | str | None = None, line: int | None = None):
        self.path, self.line = path, line
        where = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(where + message)


class NoRowsError(DataError):
    """Files hold no row that a task can use."""


class EncoderError(UsageError):
    """An encoder is missing, unreachable or not what it should be."""


class RunError(UsageError):
    """A run folder exists already, is missing or does not match."""


class ResourceError(PlaitError):
    """The machine ran out of something."""


class DeviceMemoryError(ResourceError):
    """Out of memory on the device."""


class DiskFullError(ResourceError):
    """The disk is full; the last checkpoint is kept."""


FREE_ROOM = "Free some room"
"""End of the message of a full disk; the command line adds the command to resume."""


class WorkerLostError(ResourceError):
    """Another worker process ended; the last checkpoint is kept."""


class ToldElsewhereError(PlaitError):
    """The error of this process is reported by another process, which ends for the same reason."""

    def __init__(self, reason: PlaitError):
        self.exit_code = reason.exit_code
        super().__init__(str(reason))


class Interrupted(PlaitError):  # noqa: N818 - a stop by the user is no error
    """Stopped by the user after everything was saved."""

    exit_code = 130


# --- what the machine says ---------------------------------------------------------------

_RESOURCES = {errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO}
_ADVICE = {
    errno.EACCES: "; change its permissions, or name another place",
    errno.EPERM: "; change its permissions, or name another place",
    errno.EISDIR: "; name a file",
    errno.ENOTDIR: "; name a folder",
}
"""Advice that is added to the system's message."""
_NO_MEMORY = ("out of memory", "not enough memory", "allocate memory")


def foresee(error: Exception) -> PlaitError | None:
    """Convert a system error to a PlaitError; return None for an unexpected error (a bug).

    Errors of the system (no such file, disk full, out of memory) get a readable message.
    """
    if isinstance(error, PlaitError):
        return error
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        said = f"{where}{error.strerror or error}"
        if error.errno == errno.EROFS and error.filename:  # reading is allowed there
            said = f"{error.filename} cannot be written (read-only file system): choose another"
        said += _ADVICE.get(error.errno or 0, "") if error.filename else ""
        return ResourceError(said) if error.errno in _RESOURCES else UsageError(said)
    if is_memory(error):
        said = f"out of memory: {error}" if str(error) else "out of memory"
        return ResourceError(f"{said}; other programs may hold some of it")
    return None


def is_memory(error: Exception) -> bool:
    """Return whether an error means that the machine or the device is out of memory."""
    # torch's are RuntimeErrors, and torch is not imported here. An "illegal memory access" or a
    # wrong "memory format" is a bug.
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in _NO_MEMORY)
    )


def first_line(error: BaseException) -> str:
    """Return the first line of another library's error message.

    An empty message is replaced by the name of the error's type.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


# --- numbers and names -------------------------------------------------------------------


def counted(number: int, thing: str, things: str = "") -> str:
    """Return a number with its noun: '1 row', '1,200 rows'."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


MOST_NAMED = 40
"""Maximum number of known names that a message lists."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`; None if none is similar."""
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return near[0] if near else None


def suggest(name: str, known: Iterable[str]) -> str:
    """Return '; did you mean X?', or '; known: ...' if no name is similar and there are few."""
    known = sorted(known)
    if near := nearest(name, known):
        return f"; did you mean {near!r}?"
    return f"; known: {', '.join(known)}" if 0 < len(known) <= MOST_NAMED else ""


# --- what is shown -----------------------------------------------------------------------

_CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_CONTROLS |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
"""Unicode's symbols for control characters. Newlines and tabs are kept."""


def show_controls(text: str) -> str:
    """Return a text of the same length with control characters replaced by visible symbols.

    Data may contain terminal control sequences, which could retitle a window, write to the
    clipboard or hide text.
    """
    return text.translate(_CONTROLS)
