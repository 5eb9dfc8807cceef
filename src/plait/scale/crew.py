"""The contract of a crew, which works on several jobs at once and passes on what they say."""

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
"""What a job says: a word, and what belongs to it. Its last one is what its function returns."""

Tell = Callable[[Message], Any]
"""Says something in the middle of a job, and returns the answer to it."""

Work = Callable[[Tell, Any], Message]
"""A job's function, which can be imported by its name."""

DONE, FAILED, SPENT, STOPPED, LOST = "done", "failed", "spent", "stopped", "lost"
"""Words that last messages begin with, all but the first before a reason. Spent is what the job's
machine had: its disk, its memory. What is lost had no last word."""


class UnheardError(Exception):
    """Nobody is there any more to be told anything."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What a job needs where it is done."""

    paths: tuple[Path, ...] = ()
    """That must be seen there."""
    gpu: bool = True
    """Whether it works on a GPU where there is one."""


ANYTHING = Needs()
"""Of a job that may be done wherever there is room."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended."""

    message: Message
    traceback: str = ""
    """Of an error that nobody foresaw."""


def perform(work: Work, tell: Tell, job: Any) -> Ending:
    """Do a job where it was sent to; what it raises becomes its last message."""
    try:
        return Ending(work(tell, job))
    except Interrupted as error:
        return Ending((STOPPED, str(error)))
    except UnheardError:
        return Ending((STOPPED, "nobody hears it any more"))
    except Exception as error:
        if foreseen := foresee(error):
            word = SPENT if isinstance(foreseen, ResourceError) else FAILED
            return Ending((word, str(foreseen)))
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        return Ending((FAILED, said), traceback.format_exc())


class Crew(ABC):
    """Works on several jobs at once."""

    num_places: int
    """Jobs that it works on at once."""

    def __init__(self, note: Callable[[str], None]):
        """Tell `note` of what nobody waits to hear: workers that were lost, tracebacks."""
        self._note = note

    @abstractmethod
    def names(self) -> list[str]:
        """Return the jobs under way."""

    @abstractmethod
    def start(self, name: str, work: Work, job: Any, needs: Needs = ANYTHING) -> None:
        """Begin a job."""

    @abstractmethod
    def hear(self) -> list[tuple[str, Message, bool]]:
        """Wait for messages; each with its job's name, and whether it is the job's last.

        One that is not the last waits for its answer.
        """

    @abstractmethod
    def answer(self, name: str, value: Any) -> None:
        """Answer a job's message."""

    @abstractmethod
    def stop(self) -> None:
        """Ask every job to save what it has and end; their last messages are still heard."""

    @abstractmethod
    def close(self) -> None:
        """End what is still under way, at once."""

    def _read(self, name: str, ending: Ending) -> Message:
        """Return a job's last message; a traceback is told before it."""
        if ending.traceback:
            self._note(f"{name} met an error that nobody foresaw:\n{ending.traceback.rstrip()}")
        return ending.message
