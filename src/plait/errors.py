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
    """No room left for a checkpoint; the last good one stands."""


FREE_ROOM = "Free some room"
"""How the sentence of a full disk ends; the command line adds how to go on."""


class WorkerLostError(ResourceError):
    """Another of the processes that train together is gone; the last checkpoint stands."""


class ToldElsewhereError(PlaitError):
    """What ended this process is told by another one, which ends for the same reason."""

    def __init__(self, reason: PlaitError):
        self.exit_code = reason.exit_code
        super().__init__(str(reason))


class Interrupted(PlaitError):  # noqa: N818 - it is no error that a user stops
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
"""What to do about it, where the system says no more than what is wrong."""
_NO_MEMORY = ("out of memory", "not enough memory", "allocate memory")


def foresee(error: Exception) -> PlaitError | None:
    """Return an error as one of the above; None where nobody foresaw it, as with a mistake of ours.

    What the machine says (no such file, no room, no memory) becomes a sentence.
    """
    if isinstance(error, PlaitError):
        return error
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        said = f"{where}{error.strerror or error}"
        if error.errno == errno.EROFS and error.filename:  # to read would not have been refused
            said = f"{error.filename} cannot be written (read-only file system): choose another"
        said += _ADVICE.get(error.errno or 0, "") if error.filename else ""
        return ResourceError(said) if error.errno in _RESOURCES else UsageError(said)
    if is_memory(error):
        said = f"out of memory: {error}" if str(error) else "out of memory"
        return ResourceError(f"{said}; other programs may hold some of it")
    return None


def is_memory(error: Exception) -> bool:
    """Say whether an error is one of a machine or a device without memory left."""
    # torch's are RuntimeErrors, and torch is not imported here. An "illegal memory access" or a
    # wrong "memory format" is a mistake of ours.
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in _NO_MEMORY)
    )


def first_line(error: BaseException) -> str:
    """Return the first line of what another library's error says, for a sentence of ours.

    One that says nothing is told by its kind.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


# --- numbers and names -------------------------------------------------------------------


def counted(number: int, thing: str, things: str = "") -> str:
    """Write how many there are of something: '1 row', '1,200 rows'."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"


MOST_NAMED = 40
"""Known names a sentence can still hold, such as the keys of a table."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that another was perhaps meant for."""
    near = get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return near[0] if near else None


def suggest(name: str, known: Iterable[str]) -> str:
    """Return '; did you mean X?' or, when nothing is near and they are few, '; known: ...'."""
    known = sorted(known)
    if near := nearest(name, known):
        return f"; did you mean {near!r}?"
    return f"; known: {', '.join(known)}" if 0 < len(known) <= MOST_NAMED else ""


# --- what is shown -----------------------------------------------------------------------

_CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_CONTROLS |= {0x7F: 0x2421} | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)
"""Unicode's pictures of them. Ends of lines and tabs are for people, too."""


def show_controls(text: str) -> str:
    """Return a text for people, of the same length, with signs shown that a terminal would obey.

    Data may hold some, which retitle a window, fill the clipboard or hide what comes after.
    """
    return text.translate(_CONTROLS)
