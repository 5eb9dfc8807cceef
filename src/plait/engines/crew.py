"""Jobs at once, and what they say: the seam between whoever has jobs and whoever works on them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

Message = tuple[Any, ...]
"""What a job says: a word, and what belongs to it. Its last one is what its function returns."""

Tell = Callable[[Message], Any]
"""Says something in the middle of a job, and returns the answer to it."""

Work = Callable[[Tell, Any], Message]
"""A job's function, which can be imported by its name; it raises nothing."""

DONE, FAILED, STOPPED, LOST = "done", "failed", "stopped", "lost"
"""Words that last messages begin with, the second and the last before a reason. What is lost had
no last word."""


class Crew(ABC):
    """Works on several jobs at once."""

    num_places: int
    """Jobs that it works on at once."""
    num_sharing: int
    """Those among them that share one machine's threads, which each divides by this number."""

    @abstractmethod
    def names(self) -> list[str]:
        """Return the jobs under way."""

    @abstractmethod
    def start(self, name: str, work: Work, job: Any) -> None:
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
