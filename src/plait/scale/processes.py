"""Jobs become processes of this machine, each at the end of a pipe."""

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

from plait.scale.crew import ANYTHING, LOST, Crew, Ending, UnheardError, perform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext, SpawnContext
    from multiprocessing.process import BaseProcess

    from plait.scale.crew import Message, Needs, Work

GRACE_S = 20.0
"""Seconds that a job has to save itself once its crew was killed."""


class ProcessCrew(Crew):
    """A process for each job."""

    def __init__(self, num_places: int, note: Callable[[str], None]):
        super().__init__(note)
        self.num_places = num_places
        self._context = _find_context()
        self._active: dict[str, tuple[Connection, BaseProcess]] = {}
        self._unanswered: dict[str, Message] = {}
        self._again: list[tuple[str, Message, bool]] = []
        """Messages that will be heard a second time."""

    def names(self) -> list[str]:
        """Return the jobs under way."""
        return list(self._active)

    def start(self, name: str, work: Work, job: Any, needs: Needs = ANYTHING) -> None:  # noqa: ARG002
        """Begin a job's process; what it needs is all here."""
        here, there = self._context.Pipe()
        # The environment as it is now: processes are started by one that may be older.
        settings = dict(os.environ), self.num_places
        process = self._context.Process(target=_serve, args=(there, work, job, *settings))
        with _undisturbed():
            process.start()
            self._active[name] = here, process
            there.close()  # as long as it is open here, nobody hears that the process is gone

    def hear(self) -> list[tuple[str, Message, bool]]:
        """Wait until processes have something to say."""
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
        with _undisturbed():  # half a message would be none
            said: Message | Ending = line.recv()
            if not isinstance(said, Ending):
                self._unanswered[name] = said
        return said

    def answer(self, name: str, value: Any) -> None:
        """Answer a process, which may be gone by now."""
        with suppress(OSError):
            self._active[name][0].send(value)
        self._unanswered.pop(name, None)

    def stop(self) -> None:
        """Send every process a polite kill.

        One that waits for an answer cannot end before it has it. A Ctrl-C may have come between, so
        that what it said is heard once more.
        """
        for _, process in self._active.values():
            process.terminate()
        self._again = [(name, message, False) for name, message in self._unanswered.items()]

    def close(self) -> None:
        """Kill what is left."""
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
        return "its process was killed, as it is where a machine runs out of memory"
    return f"its process ended without a word (exit code {code})"


def _find_context() -> SpawnContext | ForkServerContext:
    """Choose how processes start: from one that has torch imported and has done nothing else.

    It is started here.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    # The second is what the first optimizer would import, and half of a short trial's time.
    context.set_forkserver_preload(["plait.training.runs", "torch._dynamo"])
    # A Ctrl-C at the terminal would end it as it imports them, with a traceback.
    resource_tracker.ensure_running()  # which unblocks signals, and would be next
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    first = context.Process(target=_do_nothing)  # while a wait for the imports can be interrupted
    first.start()
    first.join()
    return context


def _do_nothing() -> None:
    pass


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let a Ctrl-C or a polite kill wait until this is over."""
    if threading.current_thread() is not threading.main_thread():  # where none is heard
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
    """Do a job in a process of its own."""
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever has the crew says when to stop
    with suppress(OSError):  # there may be neither
        os.dup2(2, 1)  # standard output is the crew's own, for results
    _end_with_parent()
    _share_threads(num_places)

    def tell(message: Message) -> Any:
        try:
            connection.send(message)
            return connection.recv()
        except (EOFError, OSError) as error:
            raise UnheardError from error

    ending = perform(work, tell, job)
    with suppress(OSError):  # nobody may be there to hear it; the folder has it all
        connection.send(ending)
    connection.close()


def _share_threads(num_places: int) -> None:
    """Take this job's part of the machine's threads, unless the user has said how many."""
    if "OMP_NUM_THREADS" in os.environ:
        return
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // num_places))


def _end_with_parent() -> None:
    """Save and stop where the parent is killed, as on a polite kill of this process.

    The pipe to the parent ends with it, however it ends.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(GRACE_S)
        os._exit(1)  # what was saved last stands

    threading.Thread(target=watch, daemon=True).start()
