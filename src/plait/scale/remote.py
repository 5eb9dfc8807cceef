"""A worker pool on a Ray cluster; a job whose worker or node is lost is started again.

Messages of running jobs go through a mailbox on this node. A job that raises an exception or
reports a failure is not started again.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait import __version__
from plait.scale.cluster import describe_host, find_missing, import_ray
from plait.scale.pool import ANYTHING, FAILED, LOST, STOPPED, Ending, WorkerPool, perform

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.scale.cluster import Cluster, Share
    from plait.scale.pool import Message, Needs, Work
    from plait.scale.request import Engine

MOST_LOSSES = 3
"""Number of workers that a job may lose before it fails: the job itself may kill them."""

GRACE = 0.5
"""Seconds to wait for tasks to end before they are cancelled: a task that ends while it is being
cancelled crashes this process."""

_STOPPED = (STOPPED, "it was stopped")

HANDED_ON = ("PLAIT_", "HF_")
"""Prefixes of the environment variables that are passed to jobs."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment that a job needs on its node."""

    paths: tuple[Path, ...]
    """Files and folders that must exist."""
    folder: Path
    """Working directory, if the node has it; relative paths are resolved against it."""
    environment: dict[str, str]
    num_threads: int
    version: str = __version__

    def enter(self) -> str | None:
        """Apply the environment to this process; return an error message if that fails."""
        if self.version != __version__:
            return (
                f"node {describe_host()} has plait {__version__}, and this one {self.version}; "
                "install the same version on all nodes"
            )
        if missing := find_missing(self.paths):
            return missing
        os.environ.update(self.environment)
        with suppress(OSError, AttributeError):
            os.setpgid(0, 0)  # Ctrl-C must reach only the process that sent the job
        with suppress(OSError):
            os.chdir(self.folder)
        import torch

        torch.set_num_threads(self.num_threads)
        return None


def describe_surroundings(paths: tuple[Path, ...], share: Share) -> Surroundings:
    """Return the environment of this process, for jobs on other nodes."""
    handed = {key: value for key, value in os.environ.items() if key.startswith(HANDED_ON)}
    return Surroundings(paths, Path.cwd(), handed, max(1, int(share.cpus)))


@dataclass(frozen=True, slots=True)
class _Task:
    name: str
    work: Work
    job: Any
    needs: Needs
    num_losses: int = 0


class RayPool(WorkerPool):
    """A pool with one Ray task per job."""

    def __init__(
        self,
        cluster: Cluster,
        engine: Engine,
        num_places: int | None,
        folder: Path,
        note: Callable[[str], None],
        *,
        gpu: bool = True,
    ):
        """Work in a folder that all nodes share; `gpu` says whether some job uses one."""
        super().__init__(note)
        share = cluster.choose_share(engine, gpu=gpu)
        self.num_places = num_places or cluster.count_places(share)
        self._cluster, self._engine, self._ray = cluster, engine, cluster.ray
        self._tasks: dict[Any, _Task] = {}
        """Tasks by the Ray reference of their result."""
        self._letters: dict[str, tuple[str, int]] = {}
        """The key of each job's last message, needed to reply to it."""
        self._is_stopping = False
        folder.mkdir(parents=True, exist_ok=True)
        # A node may have a folder of the same name on its own disk, but not this new file in it.
        self._mark = folder.absolute() / f".ray-{uuid.uuid4().hex[:12]}"
        self._mark.touch()
        self._serve = self._ray.remote(max_retries=0, max_calls=1)(_serve)
        self._mailbox = self._open_mailbox()
        self._next = self._mailbox.take.remote()

    def _open_mailbox(self) -> Any:
        strategies: Any = importlib.import_module("ray.util.scheduling_strategies")
        here = self._ray.get_runtime_context().get_node_id()
        place = strategies.NodeAffinitySchedulingStrategy(here, soft=False)
        return self._ray.remote(num_cpus=0, scheduling_strategy=place)(_Mailbox).remote()

    def names(self) -> list[str]:
        """Return the names of the running jobs."""
        return [task.name for task in self._tasks.values()]

    def start(self, name: str, work: Work, job: Any, needs: Needs = ANYTHING) -> None:
        """Submit a job to the cluster."""
        self._submit(_Task(name, work, job, needs))

    def _submit(self, task: _Task) -> None:
        share = self._cluster.choose_share(self._engine, gpu=task.needs.gpu)
        around = describe_surroundings((self._mark, *task.needs.paths), share)
        key = (task.name, task.num_losses)
        pending = self._serve.options(name=task.name, **share.options()).remote(
            self._mailbox, key, task.work, task.job, around
        )
        self._tasks[pending] = task

    def hear(self) -> list[tuple[str, Message, bool]]:
        """Wait for messages."""
        heard: list[tuple[str, Message, bool]] = []
        while self._tasks and not heard:
            ready, _ = self._ray.wait([self._next, *self._tasks], num_returns=1)
            for one in ready:
                if one in self._tasks:
                    task = self._tasks.pop(one)
                    last = self._read_last(one, task)
                    heard += [(task.name, last, True)] if last is not None else []
                    continue
                key, message = self._ray.get(one)
                self._next = self._mailbox.take.remote()
                self._letters[key[0]] = key
                heard.append((key[0], message, False))
        return heard

    def _read_last(self, pending: Any, task: _Task) -> Message | None:
        """Return a task's last message; None if it was started again."""
        errors = self._ray.exceptions
        try:
            ending: Ending = self._ray.get(pending)
        except errors.TaskCancelledError:
            return _STOPPED
        except errors.RayTaskError as error:
            ending = _explain(error)
        except errors.RayError as error:
            return self._try_again(task, type(error).__name__)
        # A node that is shut down properly lets its jobs save their state.
        if ending.message[0] == STOPPED:
            return self._try_again(task, "its node stopped it")
        return self._read(task.name, ending)

    def _try_again(self, task: _Task, why: str) -> Message | None:
        if self._is_stopping:
            return _STOPPED
        lost = replace(task, num_losses=task.num_losses + 1)
        if lost.num_losses > MOST_LOSSES:
            return (LOST, f"its worker was lost {lost.num_losses} times, last reason: {why}")
        self._note(f"{task.name}: its worker was lost ({why}); the job is started again")
        self._submit(lost)
        return None

    def answer(self, name: str, value: Any) -> None:
        """Reply to a job's message."""
        self._mailbox.answer.remote(self._letters.pop(name), value)

    def stop(self) -> None:
        """Interrupt every job, like Ctrl-C."""
        self._is_stopping = True
        for pending in self._tasks:
            self._ray.cancel(pending)

    def close(self) -> None:
        """Cancel all running jobs."""
        left = list(self._tasks)
        with suppress(Exception):  # the cluster may be gone
            _, left = self._ray.wait(left, num_returns=len(left), timeout=GRACE)
        for pending in left:
            with suppress(Exception):
                self._ray.cancel(pending, force=True)
        self._tasks.clear()
        with suppress(Exception):
            self._ray.kill(self._mailbox)
        self._mark.unlink(missing_ok=True)


class _Mailbox:
    """A Ray actor to which jobs send messages, and where they wait for replies."""

    def __init__(self) -> None:
        self.letters: asyncio.Queue[tuple[tuple[str, int], Message]] = asyncio.Queue()
        self.answers: dict[tuple[str, int], asyncio.Future[Any]] = {}

    async def tell(self, key: tuple[str, int], message: Message) -> Any:
        """Add a message; wait for the reply and return it."""
        self.answers[key] = asyncio.get_running_loop().create_future()
        await self.letters.put((key, message))
        return await self.answers[key]

    async def take(self) -> tuple[tuple[str, int], Message]:
        """Return the next message."""
        return await self.letters.get()

    async def answer(self, key: tuple[str, int], value: Any) -> None:
        """Reply to a message; its sender may be gone."""
        waiting = self.answers.pop(key, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(value)


def _serve(
    mailbox: Any, key: tuple[str, int], work: Work, job: Any, around: Surroundings
) -> Ending:
    """Run a job in a worker's process."""
    if refusal := around.enter():
        return Ending((FAILED, refusal))
    ray = import_ray()

    def tell(message: Message) -> Any:
        return ray.get(mailbox.tell.remote(key, message))

    return perform(work, tell, job)


def _explain(error: Any) -> Ending:
    """Return the failure of a task outside of its job, which reports its own errors."""
    cause = error.cause if isinstance(error.cause, Exception) else error
    said = " ".join(str(cause).split())
    if "No module named 'plait'" in said:
        advice = "its node does not have plait; install the same version on every node"
        return Ending((FAILED, advice))
    return Ending((FAILED, f"{type(cause).__name__}: {said[-300:]}"), str(error))
