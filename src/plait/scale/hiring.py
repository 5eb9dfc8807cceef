"""An engine that is asked for becomes a crew, for as long as it is needed."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from plait.scale.processes import ProcessCrew
from plait.training.sharing import shared_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from plait.scale.crew import Crew
    from plait.scale.request import Engine


@contextmanager
def hired(
    engine: Engine,
    num_places: int | None,
    folder: Path,
    note: Callable[[str], None],
    *,
    gpu: bool = True,
) -> Iterator[Crew]:
    """Give a crew for so many jobs at once that write below a folder, and end it afterwards.

    Without a number it is one job here, and what a cluster has room for there, where `gpu` says
    whether some of the jobs use one. `note` hears of workers that were lost, and tracebacks.
    """
    if engine.is_ray:
        from plait.scale.cluster import connected
        from plait.scale.remote import RayCrew

        with (
            connected(engine) as cluster,
            _at_work(RayCrew(cluster, engine, num_places, folder, note, gpu=gpu)) as crew,
        ):
            yield crew
        return
    with (
        shared_gpu(num_places or 1),  # before the first process begins
        _at_work(ProcessCrew(num_places or 1, note)) as crew,
    ):
        yield crew


@contextmanager
def _at_work(crew: Crew) -> Iterator[Crew]:
    """Close a crew in the end; until then a polite kill of this process is a Ctrl-C."""

    def interrupt(number: int, _frame: object) -> None:
        # Once: `timeout` sends two in a row, and a second Ctrl-C would let nobody save.
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    is_main = threading.current_thread() is threading.main_thread()  # others hear no signals
    before = signal.signal(signal.SIGTERM, interrupt) if is_main else None
    try:
        yield crew
    finally:
        crew.close()
        if is_main:
            signal.signal(signal.SIGTERM, before)
