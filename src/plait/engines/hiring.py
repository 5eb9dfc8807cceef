"""An engine that is asked for becomes a crew, for as long as it is needed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from plait.engines.processes import ProcessCrew
from plait.training.sharing import shared_gpu

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from plait.engines.crew import Crew
    from plait.engines.request import Engine


@contextmanager
def hired(
    engine: Engine, num_places: int | None, folder: Path, note: Callable[[str], None]
) -> Iterator[Crew]:
    """Give a crew for so many jobs at once that write below a folder, and end it afterwards.

    Without a number it is one job here, and what a cluster has room for there. `note` hears of
    workers that were lost.
    """
    if engine.is_ray:
        from plait.engines.cluster import connected
        from plait.engines.remote import RayCrew

        with connected(engine) as cluster:
            crew: Crew = RayCrew(cluster, cluster.choose_share(engine), num_places, folder, note)
            try:
                yield crew
            finally:
                crew.close()
        return
    with shared_gpu(num_places or 1):  # before the first process begins
        crew = ProcessCrew(num_places or 1)
        try:
            yield crew
        finally:
            crew.close()
