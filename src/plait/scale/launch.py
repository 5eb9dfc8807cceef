"""Connect the processes that torchrun started, and end them together."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.errors import Interrupted, PlaitError, ToldElsewhereError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plait.scale.group import Workers

REPORTED = "plait/reported"
"""Key in the team's store: the number of workers that have reported an error."""


@dataclass(frozen=True, slots=True)
class Launch:
    """The environment variables that a launcher such as torchrun sets for a process."""

    local_rank: int
    local_size: int
    num_hosts: int

    @property
    def words(self) -> list[str]:
        """The command that started plait, as far as it is known."""
        hosts = ["--nnodes", str(self.num_hosts)] if self.num_hosts > 1 else []
        return ["torchrun", *hosts, "--nproc-per-node", str(self.local_size), "-m", "plait"]


def find_launch(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """Return torchrun's settings; None if plait was started as a single process."""
    wanted = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    if any(name not in environment for name in wanted) or environment["WORLD_SIZE"] == "1":
        return None
    return Launch(
        local_rank=int(environment.get("LOCAL_RANK", "0")),
        local_size=int(environment.get("LOCAL_WORLD_SIZE", "1")),
        num_hosts=int(environment.get("GROUP_WORLD_SIZE", "1")),
    )


@contextmanager
def joined(launch: Launch) -> Iterator[Workers]:
    """Connect the team of a launch. An error in one process ends all; one of them reports it."""
    import torch
    import torch.distributed as dist

    from plait.scale.group import PATIENCE, Workers

    if not dist.is_available():
        raise UsageError("this build of torch has no torch.distributed: start a single process")
    backend = "gloo"
    if torch.cuda.is_available() and launch.local_size <= torch.cuda.device_count():
        torch.cuda.set_device(launch.local_rank)
        backend = "cpu:gloo,cuda:nccl"
    # Imported later, it would hold the group as a default argument forever (see `leave`).
    import torch.distributed.nn

    dist.init_process_group(backend, timeout=PATIENCE)
    team = Workers(launch.local_rank, launch.local_size)
    try:
        yield team
    except KeyboardInterrupt as error:
        if team.leads:
            raise
        raise ToldElsewhereError(Interrupted("stopped")) from error
    except PlaitError as error:
        speaks = _speaks_first()
        if backend == "gloo":  # NCCL would wait for workers that are gone
            team.leave()
        if not speaks:
            raise ToldElsewhereError(error) from error
        raise
    else:
        team.leave()


def _speaks_first() -> bool:
    """Return whether this worker is the first to report an error.

    A worker that fails calls this before its connections break, so workers that fail because of
    the broken connections come later.
    """
    import torch.distributed as dist

    # A launcher ends the others as soon as one has ended: let them print their message first.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    with suppress(RuntimeError):  # the process that holds the store may be gone
        return bool(dist.distributed_c10d._get_default_store().add(REPORTED, 1) == 1)
    return True
