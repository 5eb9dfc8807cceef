"""A worker pool of processes on this machine, connected by pipes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any, cast

from plait.scale.pool import ANYTHING, LOST, Ending, UnheardError, WorkerPool, perform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext, SpawnContext
    from multiprocessing.process import BaseProcess

    from plait.scale.pool import Message, Needs, Work

GRACE_S = 20.0
"""Seconds that a job has to save its state after its pool was killed."""


class ProcessPool(WorkerPool):
    """A pool with one process per job."""

    def __init__(self, num_places: int, note: Callable[[str], None]):
        super().__init__(note)
        self.num_places = num_places
        self._context = _find_context()
        self._active: dict[str, tuple[Connection, BaseProcess]] = {}
        self._unanswered: dict[str, Message] = {}
        self._again: list[tuple[str, Message, bool]] = []
        """Messages that `hear` returns a second time."""

    def names(self) -> list[str]:
        """Return the names of the running jobs."""
        return list(self._active)

    def start(self, name: str, work: Work, job: Any, needs: Needs = ANYTHING) -> None:  # noqa: ARG002
        """Start a job's process; `needs` is ignored, as all files are on this machine."""
        here, there = self._context.Pipe()
        # Pass the current environment: the process that starts others may have an older one.
        settings = dict(os.environ), self.num_places
        process = self._context.Process(target=_serve, args=(there, work, job, *settings))
        with _undisturbed():
            process.start()
            self._active[name] = here, process
            there.close()  # while it is open here, the end of the process is not detected

    def hear(self) -> list[tuple[str, Message, bool]]:
        """Wait for messages."""
        if self._again:
            again, self._again = self._again, []
            return again
        lines = {line: name for name, (line, _) in self._active.items()}
        heard = []
        for line in cast("list[Connection]", wait(list(lines))):
            name = lines[line]
            try:
                said = self._receive(name, line)
            except (EOFError, OSError):
                lost = _describe_end(self._drop(name).exitcode)
                heard.append((name, (LOST, lost), True))
                continue
            if is_last := isinstance(said, Ending):
                self._drop(name)
                said = self._read(name, said)
            heard.append((name, said, is_last))
        return heard

    def _receive(self, name: str, line: Connection) -> Message | Ending:
        with _undisturbed():  # a message must be read completely
            said: Message | Ending = line.recv()
            if not isinstance(said, Ending):
                self._unanswered[name] = said
        return said

    def answer(self, name: str, value: Any) -> None:
        """Reply to a process, which may have ended."""
        with suppress(OSError):
            self._active[name][0].send(value)
        self._unanswered.pop(name, None)

    def stop(self) -> None:
        """Send SIGTERM to every process.

        A process that waits for a reply cannot end before it has the reply. Ctrl-C may have
        interrupted that reply, so `hear` returns its message again.
        """
        for _, process in self._active.values():
            process.terminate()
        self._again = [(name, message, False) for name, message in self._unanswered.items()]

    def close(self) -> None:
        """Kill all running processes."""
        for name in self.names():
            self._active[name][1].kill()
            self._drop(name)

    def _drop(self, name: str) -> BaseProcess:
        line, process = self._active.pop(name)
        self._unanswered.pop(name, None)
        line.close()
        process.join()
        return process


def _describe_end(code: int | None) -> str:
    if code == -9:  # SIGKILL, which Windows has not
        return "its process was killed, possibly because the machine ran out of memory"
    return f"its process ended without a message (exit code {code})"


def _find_context() -> SpawnContext | ForkServerContext:
    """Return the start method: a fork server that has imported torch, where available.

    This starts the fork server.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # The first optimizer imports the second module; that takes half the time of a short trial.
    context.set_forkserver_preload(["plait.training.runs", "torch._dynamo"])
    # Ctrl-C during the imports would end it with a traceback.
    resource_tracker.ensure_running()  # now, because starting it unblocks signals
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    first = context.Process(target=_do_nothing)  # waiting for the imports can be interrupted
    first.start()
    first.join()
    return context


def _do_nothing() -> None:
    pass


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Delay SIGINT and SIGTERM until the end of this context."""
    if threading.current_thread() is not threading.main_thread():  # it gets no signals
        yield
        return
    heard: list[int] = []
    wanted = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda number, _: heard.append(number)) for number in wanted]
    try:
        yield
    finally:
        for one, handler in zip(wanted, before, strict=True):
            signal.signal(one, handler)
        for number in heard:
            signal.raise_signal(number)


# --- in a job's process ------------------------------------------------------------------


def _serve(
    connection: Connection, work: Work, job: Any, environment: dict[str, str], num_places: int
) -> None:
    """Run a job in this new process."""
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool's process decides when to stop
    with suppress(OSError):  # there may be neither
        os.dup2(2, 1)  # standard output belongs to the pool's process, for results
    _end_with_parent()
    _share_threads(num_places)

    def tell(message: Message) -> Any:
        try:
            connection.send(message)
            return connection.recv()
        except (EOFError, OSError) as error:
            raise UnheardError from error

    ending = perform(work, tell, job)
    with suppress(OSError):  # the parent may be gone; the run folder has everything
        connection.send(ending)
    connection.close()


def _share_threads(num_places: int) -> None:
    """Set this job's share of the machine's threads, unless OMP_NUM_THREADS is set."""
    if "OMP_NUM_THREADS" in os.environ:
        return
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // num_places))


def _end_with_parent() -> None:
    """Save and stop if the parent process ends, as on SIGTERM.

    The pipe to the parent closes when the parent ends, for any reason.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_S)
        os._exit(1)  # the last checkpoint remains

    threading.Thread(target=watch, daemon=True).start()
