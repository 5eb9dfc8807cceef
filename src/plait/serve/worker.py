"""Loaded runs in a process of their own: parcels go through a pipe, answers come back.

The web's process then never waits for Python's lock behind a model, and outlives a model that
takes its process down.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from typing import TYPE_CHECKING, Any

from plait.errors import PlaitError
from plait.serve.logs import where
from plait.serve.pool import Died, Failed

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from plait.serve.catalog import Catalog
    from plait.serve.parcels import Answer, Ask, RunsToLoad

START_SECONDS = 600.0
"""How long loading may take."""


class Worker:
    """The web's end of a process that answers."""

    def __init__(self, wanted: RunsToLoad, patience: float):
        self._wanted, self._patience = wanted, patience
        self._known: dict[str, str] = {}
        """The runs that were loaded at first, by their fingerprints."""
        self.start()

    def start(self) -> None:
        """Start the process; it loads while others do something else."""
        context = multiprocessing.get_context("spawn")  # threads and forks do not go together
        pipe, theirs = context.Pipe()
        process = context.Process(
            target=_run, args=(theirs, self._wanted), name="plait-worker", daemon=True
        )
        process.start()  # fails where memory is short; the old one then stays in its place, ended
        self._pipe, self._process, self._is_loaded = pipe, process, False
        theirs.close()  # so that the pipe ends when the process does

    def wait(self) -> Catalog:
        """Return what the process has loaded."""
        kind, value = self._receive(START_SECONDS)
        if kind == "error":
            raise value
        self._is_loaded = True
        found: Catalog = value
        self._known = self._known or _fingerprints(found)
        return found

    @property
    def pid(self) -> int | None:
        """The process's number."""
        return self._process.pid

    def answer(self, ask: Ask) -> list[Answer]:
        """Answer each row, or say what became of the process."""
        try:
            self._pipe.send(ask)
        except OSError as error:
            raise Died(self._end()) from error
        kind, value = self._receive(self._patience)
        if kind == "error":
            raise Failed(value)
        found: list[Answer] = value
        return found

    def _receive(self, seconds: float) -> tuple[str, Any]:
        try:
            if not self._pipe.poll(seconds):
                self._process.kill()
                self._process.join(5)  # or it might pass for alive, and be given the next parcel
                raise Died(f"a worker was killed after {seconds:g} s without an answer")
            found: tuple[str, Any] = self._pipe.recv()
        except (EOFError, OSError) as error:
            raise Died(self._end()) from error
        return found

    def _end(self) -> str:
        self._process.join(5)
        return f"a worker ended with code {self._process.exitcode}"

    def is_alive(self) -> bool:
        """Say whether the process is there and has loaded."""
        return self._is_loaded and self._process.is_alive()

    def restart(self) -> list[str]:
        """Start a process anew and wait until it can answer; return the runs that have changed."""
        self.close()
        self.start()
        now = _fingerprints(self.wait())
        return [name for name, known in self._known.items() if now.get(name) != known]

    def close(self) -> None:
        """End the process."""
        self._pipe.close()  # which it takes for the end, once it has loaded
        self._process.join(5 if self._is_loaded else 0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _fingerprints(catalog: Catalog) -> dict[str, str]:
    return {name: run.fingerprint for name, run in catalog.runs.items()}


def _run(pipe: Connection, wanted: RunsToLoad) -> None:
    """Answer until the pipe ends."""
    # Before torch comes: its threads must not keep the cores busy while they wait for each other,
    # since the web's process and other workers want them.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    _answer_all(pipe, wanted)
    os._exit(0)  # nothing here needs an end, and taking torch apart takes seconds


def _answer_all(pipe: Connection, wanted: RunsToLoad) -> None:
    # Both go to all processes at once, from a terminal or a supervisor. The web's then answers
    # what it has accepted, for which it needs this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    from plait.serve.models import Models

    try:
        models = Models.load(wanted)
    except PlaitError as error:
        pipe.send(("error", error))
        return
    pipe.send(("catalog", models.catalog))
    while True:
        try:
            ask = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            reply: tuple[str, Any] = ("answers", models.answer(ask))
        except Exception as error:  # whatever it is, the next parcel may be answered
            # Not what it says, which may quote a text: this goes into the log.
            reply = ("error", f"{type(error).__name__} at {where(error.__traceback__)}")
        try:
            pipe.send(reply)
        except OSError:
            return
