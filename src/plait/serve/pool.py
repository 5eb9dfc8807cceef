"""Workers answer parcels, a thread of the web's process for each; one that dies is replaced.

A row whose worker died is given to another once. So what was accepted is answered, or its client
is told that it was not.
"""

from __future__ import annotations

import time
from threading import Event, Thread
from typing import TYPE_CHECKING, Protocol

from plait.errors import PlaitError
from plait.serve.batching import Queue, Row, ask_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.serve.parcels import Answer, Ask

IDLE_SECONDS = 1.0
"""How often an idle worker is looked after."""
MOST_SECONDS = 30.0
"""Between two tries to start a worker."""


class Died(Exception):  # noqa: N818 - what happened, not whose error it is
    """A worker is gone."""


class Failed(Exception):  # noqa: N818 - as above
    """A model could not answer, and lives on."""


class Backend(Protocol):
    """What answers parcels: models in this process, or in another."""

    def answer(self, ask: Ask) -> list[Answer]:
        """Answer each row; raises Died or anything else."""

    def is_alive(self) -> bool:
        """Say whether it could answer."""

    def restart(self) -> Sequence[str]:
        """Make it alive again; return the runs that are not what they were at first."""

    def close(self) -> None:
        """End it."""


class Watcher(Protocol):
    """Hears what becomes of parcels and workers."""

    def answered(self, rows: Sequence[Row], seconds: float) -> None:
        """A parcel was answered."""

    def failed(self, num_rows: int, num_again: int, error: Exception) -> None:
        """A parcel was not; so many of its rows are tried once more."""

    def restarted(self, number: int, reason: str, error: Exception | None) -> None:
        """A dead worker was replaced, or could not be for now."""


class Pool:
    """Backends at work."""

    def __init__(self, queue: Queue, backends: Sequence[Backend], watcher: Watcher):
        self._queue, self._backends, self._watcher = queue, list(backends), watcher
        self._stopping = Event()
        self._threads = [
            Thread(target=self._work, args=(i,), name=f"worker-{i}", daemon=True)
            for i in range(len(backends))
        ]

    def start(self) -> None:
        """Begin to answer."""
        for thread in self._threads:
            thread.start()

    @property
    def num_alive(self) -> int:
        """How many could answer now."""
        return sum(backend.is_alive() for backend in self._backends)

    def close(self) -> None:
        """Answer what was accepted, then end the workers."""
        self._queue.close()
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        for backend in self._backends:
            backend.close()

    def _work(self, number: int) -> None:
        backend = self._backends[number]
        while True:
            rows = self._queue.take(IDLE_SECONDS)
            if rows:
                self._answer(backend, rows)
            elif self._queue.is_closed and not len(self._queue):
                return
            if not backend.is_alive():
                self._revive(number)
                if not backend.is_alive():  # given up, since everything is
                    return

    def _answer(self, backend: Backend, rows: list[Row]) -> None:
        began = time.monotonic()
        try:
            answers = backend.answer(ask_for(rows))
        except Exception as error:  # of whatever kind: the thread must live on
            again = self._queue.fail(rows, error)
            self._watcher.failed(len(rows), again, error)
            return
        seconds = time.monotonic() - began
        self._watcher.answered(rows, seconds)  # so that who is answered finds it in the figures
        self._queue.finish(rows, answers, seconds)

    def _revive(self, number: int) -> None:
        """Start a worker again, sooner or later; while stopping, once if rows wait for it."""
        pause = 1.0
        while not (self._queue.is_closed and not len(self._queue)):
            try:
                changed = self._backends[number].restart()
            except (PlaitError, Died, OSError) as error:
                self._watcher.restarted(number, "it could not be started", error)
            else:
                reason = "it was gone"
                if changed:
                    named = ", ".join(changed)
                    reason += f"; it has other models now than the server began with, of {named}"
                self._watcher.restarted(number, reason, None)
                return
            if self._stopping.wait(pause):
                return
            pause = min(2 * pause, MOST_SECONDS)
