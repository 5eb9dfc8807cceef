"""Jobs become processes of this machine, each at the end of a pipe."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from contextlib import suppress
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, cast

from plait.engines.crew import LOST, STOPPED, Crew

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext, SpawnContext
    from multiprocessing.process import BaseProcess

    from plait.engines.crew import Message, Work


class ProcessCrew(Crew):
    """A process for each job."""

    def __init__(self, num_places: int):
        self.num_places = self.num_sharing = num_places
        self._context = _find_context()
        self._active: dict[str, tuple[Connection, BaseProcess]] = {}

    def names(self) -> list[str]:
        """Return the jobs under way."""
        return list(self._active)

    def start(self, name: str, work: Work, job: Any) -> None:
        """Begin a job's process."""
        here, there = self._context.Pipe()
        # The environment as it is now: processes are started by one that may be older.
        environment = dict(os.environ)
        process = self._context.Process(target=_serve, args=(there, work, job, environment))
        process.start()
        there.close()
        self._active[name] = here, process

    def hear(self) -> list[tuple[str, Message, bool]]:
        """Wait until processes have something to say."""
        lines = {line: name for name, (line, _) in self._active.items()}
        heard = []
        for line in cast("list[Connection]", wait(list(lines))):
            name = lines[line]
            try:
                is_last, message = line.recv()
            except (EOFError, ConnectionError):
                process = self._drop(name)
                said = f"its process ended without a word (exit code {process.exitcode})"
                heard.append((name, (LOST, said), True))
                continue
            if is_last:
                self._drop(name)
            heard.append((name, message, is_last))
        return heard

    def answer(self, name: str, value: Any) -> None:
        """Answer a process, which may be gone by now."""
        with suppress(OSError):
            self._active[name][0].send(value)

    def stop(self) -> None:
        """Send every process a polite kill."""
        for _, process in self._active.values():
            process.terminate()

    def close(self) -> None:
        """Kill what is left."""
        for name in self.names():
            self._active[name][1].kill()
            self._drop(name)

    def _drop(self, name: str) -> BaseProcess:
        line, process = self._active.pop(name)
        line.close()
        process.join()
        return process


def _find_context() -> SpawnContext | ForkServerContext:
    """Choose how processes start: from one that has torch imported and has done nothing else."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # The second is what the first optimizer would import, and half of a short trial's time.
    context.set_forkserver_preload(["plait.runs", "torch._dynamo"])
    return context


def _serve(connection: Connection, work: Work, job: Any, environment: dict[str, str]) -> None:
    """Do a job in a process of its own."""
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever has the crew says when to stop
    _end_with_parent()

    def tell(message: Message) -> Any:
        connection.send((False, message))
        return connection.recv()

    try:
        last = work(tell, job)
    except (EOFError, ConnectionError):
        last = (STOPPED,)
    with suppress(OSError):  # nobody may be there to hear it; the folder has it all
        connection.send((True, last))
    connection.close()


def _end_with_parent() -> None:
    """Save and stop where the parent is killed, as on a polite kill of this process."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
