"""What takes minutes is made in a process of its own, one thing at a time, and kept.

Who asks hears how far it is and asks again. A failure is told once; asking again tries again.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import OrderedDict
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING

from plait.errors import PlaitError
from plait.serve.logs import Log, where
from plait.serve.making import MAKERS, hide_folders

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

MOST_KEPT = 32
"""Things made, the last ones asked for."""
MOST_WAITING = 8
MOST_SECONDS = 3600.0


class Busy(Exception):  # noqa: N818 - it is a state, and the client's turn to wait
    """Too much waits to be made."""


@dataclass(slots=True)
class Errand:
    """Something to be made of a run's folder, or made already."""

    what: str
    folder: Path
    stamp: float
    """When the model was written; a later one makes the errand an old one."""
    step: str = "waiting for its turn"
    made: bytes | None = None
    error: str | None = None
    fault: dict[str, str | None] | None = None
    """An error that nobody foresaw, and where it was raised: for the log, not for who asks."""

    @property
    def is_over(self) -> bool:
        """Whether it was made, or could not be."""
        return self.made is not None or self.error is not None


class Errands:
    """Makes things on demand; safe to use from several threads."""

    def __init__(self, data: str | None = None, device: str = "auto", log: Log | None = None):
        self._data, self._device, self._log = data, device, log or Log()
        self._known: OrderedDict[tuple[str, Path], Errand] = OrderedDict()
        self._waiting: SimpleQueue[Errand] = SimpleQueue()
        self._lock, self._stopping = Lock(), Event()
        self._thread = Thread(target=self._work, name="errands", daemon=True)

    def ask(self, what: str, folder: Path) -> Errand:
        """Return an errand as it stands, after putting it in the row if it is new."""
        key, stamp = (what, folder), _stamp(folder)
        with self._lock:
            known = self._known.get(key)
            if known is not None and (known.stamp == stamp or not known.is_over):
                self._known.move_to_end(key)
                if known.error is not None:
                    del self._known[key]
                return known
            if sum(not errand.is_over for errand in self._known.values()) >= MOST_WAITING:
                raise Busy
            errand = self._known[key] = Errand(what, folder, stamp)
            over = [key for key, errand in self._known.items() if errand.is_over]
            for old in over[: max(0, len(self._known) - MOST_KEPT)]:
                del self._known[old]
            if self._thread.ident is None:
                self._thread.start()
            self._waiting.put(errand)
            return errand

    def close(self) -> None:
        """Give up what is under way."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                errand = self._waiting.get(timeout=0.2)
            except Empty:
                continue
            errand.step = "starting"
            try:
                self._run(errand)
            except (OSError, EOFError):
                errand.error = "its process ended before it was done; the machine may lack memory"
            if errand.fault is not None:
                self._log.write("not_made", level="error", what=errand.what, **errand.fault)

    def _run(self, errand: Errand) -> None:
        """Have a process make it, and hear what it says until it ends."""
        context = multiprocessing.get_context("spawn")  # threads and forks do not go together
        ours, theirs = context.Pipe(duplex=False)
        job = (errand.what, errand.folder, self._data, self._device)
        process = context.Process(
            target=_make, args=(theirs, *job), name="plait-errand", daemon=True
        )
        process.start()
        theirs.close()  # so that the pipe ends when the process does
        until = time.monotonic() + MOST_SECONDS
        try:
            while not errand.is_over:
                if self._stopping.is_set():
                    errand.error = "the server is stopping"
                elif time.monotonic() > until:
                    errand.error = f"it took longer than {MOST_SECONDS / 60:.0f} minutes"
                elif ours.poll(0.2):
                    kind, value = ours.recv()
                    setattr(errand, kind, value)
        finally:
            process.kill()
            process.join()
            ours.close()


def _stamp(folder: Path) -> float:
    try:
        return (folder / "model.safetensors").stat().st_mtime
    except OSError:
        return 0.0


def _make(pipe: Connection, what: str, folder: Path, data: str | None, device: str) -> None:
    """Make something, in a process of its own that lets questions go first."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server's to hear; it ends this process
    if hasattr(os, "nice"):
        os.nice(10)
    last = 0.0

    def tell(step: str) -> None:
        nonlocal last
        if time.monotonic() - last > 0.1:
            last = time.monotonic()
            pipe.send(("step", step))

    try:
        pipe.send(("step", "loading the model"))
        pipe.send(("made", MAKERS[what](folder, data, device, tell)))
    except PlaitError as error:
        pipe.send(("error", hide_folders(str(error))))
    except Exception as error:  # whatever it is, the server goes on
        name = type(error).__name__
        pipe.send(("fault", {"error": name, "where": where(error.__traceback__)}))
        pipe.send(("error", f"it failed ({name})"))
