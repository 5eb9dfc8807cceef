"""Open the worker pool of an engine."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from plait.scale.processes import ProcessPool
from plait.training.sharing import shared_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from plait.scale.pool import WorkerPool
    from plait.scale.request import Engine


@contextmanager
def open_pool(
    engine: Engine,
    num_places: int | None,
    folder: Path,
    note: Callable[[str], None],
    *,
    gpu: bool = True,
) -> Iterator[WorkerPool]:
    """Open a pool that runs `num_places` jobs at once; a context manager that closes it.

    All jobs write below `folder`. If `num_places` is None, it is 1 on this machine, and as many as
    fit on a cluster; `gpu` says whether some jobs use a GPU. `note` is called with messages about
    lost workers, and with tracebacks.
    """
    if engine.is_ray:
        from plait.scale.cluster import connected
        from plait.scale.remote import RayPool

        with (
            connected(engine) as cluster,
            _at_work(RayPool(cluster, engine, num_places, folder, note, gpu=gpu)) as pool,
        ):
            yield pool
        return
    with (
        shared_gpu(num_places or 1),  # before the first process starts
        _at_work(ProcessPool(num_places or 1, note)) as pool,
    ):
        yield pool


@contextmanager
def _at_work(pool: WorkerPool) -> Iterator[WorkerPool]:
    """Close a pool at the end; until then, handle SIGTERM like Ctrl-C."""

    def interrupt(number: int, _frame: object) -> None:
        # Only once: `timeout` sends two signals, and a second Ctrl-C would prevent saving.
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()  # others get no signals
    before = signal.signal(signal.SIGTERM, interrupt) if is_main else None
    try:
        yield pool
    finally:
        pool.close()
        if is_main:
            signal.signal(signal.SIGTERM, before)
