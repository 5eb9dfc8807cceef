"""The interface of a worker pool, which runs several jobs at once and returns their messages."""

from __future__ import annotations

import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.errors import Interrupted, ResourceError, foresee

if TYPE_CHECKING:
    from pathlib import Path

Message = tuple[Any, ...]
"""A word and its values. A job's last message is what its function returns."""

Tell = Callable[[Message], Any]
"""Sends a message from a running job, and returns the reply."""

Work = Callable[[Tell, Any], Message]
"""A job's function; it must be importable by name."""

DONE, FAILED, SPENT, STOPPED, LOST = "done", "failed", "spent", "stopped", "lost"
"""First words of last messages; all but DONE are followed by a reason. SPENT: the machine ran out
of disk space or memory. LOST: the worker ended without a message."""


class UnheardError(Exception):
    """The process that started the job is gone, so a message cannot be delivered."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a job needs on its machine."""

    paths: tuple[Path, ...] = ()
    """Files and folders that must exist there."""
    gpu: bool = True
    """Whether the job uses a GPU if there is one."""


ANYTHING = Needs()
"""The needs of a job that can run anywhere."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended."""

    message: Message
    traceback: str = ""
    """The traceback of an unexpected error."""


def perform(work: Work, tell: Tell, job: Any) -> Ending:
    """Run a job in its worker process; an exception becomes its last message."""
    try:
        return Ending(work(tell, job))
    except Interrupted as error:
        return Ending((STOPPED, str(error)))
    except UnheardError:
        return Ending((STOPPED, "the process that started it is gone"))
    except Exception as error:
        if foreseen := foresee(error):
            word = SPENT if isinstance(foreseen, ResourceError) else FAILED
            return Ending((word, str(foreseen)))
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Ending((FAILED, said), traceback.format_exc())


class WorkerPool(ABC):
    """Runs several jobs at once."""

    num_places: int
    """Number of jobs that run at once."""

    def __init__(self, note: Callable[[str], None]):
        """Call `note` with messages about lost workers, and with tracebacks."""
        self._note = note

    @abstractmethod
    def names(self) -> list[str]:
        """Return the names of the running jobs."""

    @abstractmethod
    def start(self, name: str, work: Work, job: Any, needs: Needs = ANYTHING) -> None:
        """Start a job."""

    @abstractmethod
    def hear(self) -> list[tuple[str, Message, bool]]:
        """Wait for messages; return each with its job's name and whether it is the job's last.

        A job waits for the reply to every message but its last.
        """

    @abstractmethod
    def answer(self, name: str, value: Any) -> None:
        """Reply to a job's message."""

    @abstractmethod
    def stop(self) -> None:
        """Ask every job to save its state and end; `hear` still returns the last messages."""

    @abstractmethod
    def close(self) -> None:
        """End all running jobs immediately."""

    def _read(self, name: str, ending: Ending) -> Message:
        """Return a job's last message; pass its traceback to `note`."""
        if ending.traceback:
            self._note(f"unexpected error in {name}:\n{ending.traceback.rstrip()}")
        return ending.message
