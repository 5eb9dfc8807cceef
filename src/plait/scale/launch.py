"""How processes that were started together become a team, and how they end together."""

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

TOLD = "plait/told"
"""Key of the team's store that counts who has spoken of an error."""


@dataclass(frozen=True, slots=True)
class Launch:
    """What a launcher such as torchrun says of a process in its environment."""

    local_rank: int
    local_size: int
    num_hosts: int

    @property
    def words(self) -> list[str]:
        """How plait was started, as far as it can be told."""
        hosts = ["--nnodes", str(self.num_hosts)] if self.num_hosts > 1 else []
        return ["torchrun", *hosts, "--nproc-per-node", str(self.local_size), "-m", "plait"]


def find_launch(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """Return what torchrun says; None where nobody started several processes."""
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
    """Form the team of a launch; what ends one ends all, with one of them telling why."""
    import torch
    import torch.distributed as dist

    from plait.scale.group import PATIENCE, Workers

    if not dist.is_available():
        raise UsageError("this build of torch has no torch.distributed: start one process")
    backend = "gloo"
    if torch.cuda.is_available() and launch.local_size <= torch.cuda.device_count():
        torch.cuda.set_device(launch.local_rank)
        backend = "cpu:gloo,cuda:nccl"
    # Read later, it would keep the group for good as a default of its functions (see `leave`).
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
        if backend == "gloo":  # NCCL would wait here for workers that are gone
            team.leave()
        if not speaks:
            raise ToldElsewhereError(error) from error
        raise
    else:
        team.leave()


def _speaks_first() -> bool:
    """Say whether no other worker has told of an error yet; and if so, be the one who does.

    Whoever ends by an error has been here before its connections break, so that those who notice
    come later.
    """
    import torch.distributed as dist

    # A launcher ends the others as soon as one is gone; they have something to say first.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)

    with suppress(RuntimeError):  # the store may be gone with the process that held it
        return bool(dist.distributed_c10d._get_default_store().add(TOLD, 1) == 1)
    return True
