"""`--jobs` and `--engine`: several runs at once, as processes here or on a Ray cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.scale import Engine
    from plait.scale.running import Place, Runs

OVERVIEW_S = 60.0
"""Seconds between two lines about runs that are trained at once."""

JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        help="Runs at once: 1 unless given, or with Ray as many as there is room for.",
    ),
]
EngineOption = Annotated[
    Literal["local", "ray"],
    typer.Option("--engine", help="Who works: this machine, or a Ray cluster."),
]
AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="The Ray cluster, or auto for this node's; one is started here unless given.",
    ),
]
CpusOption = Annotated[
    float | None,
    typer.Option("--cpus-per-run", metavar="N", help="CPUs of each run on Ray; 1 unless given."),
]
GpusOption = Annotated[
    float | None,
    typer.Option(
        "--gpus-per-run",
        metavar="N",
        help="GPUs of each run on Ray, such as 0.5; 1 unless given, 0 for device = cpu.",
    ),
]


def make_engine(
    name: Literal["local", "ray"], address: str | None, cpus: float | None, gpus: float | None
) -> Engine:
    """Make an engine of the options, and refuse one that cannot be had."""
    from plait.scale import Engine
    from plait.scale.cluster import check_engine

    engine = Engine(name, address, cpus, gpus)
    check_engine(engine)
    return engine


def choose_training(
    engine: Engine, num_jobs: int | None, num_workers: int
) -> Callable[[Runs], None] | None:
    """Return what trains several runs; None where this process does, one after the other."""
    if num_workers > 1:
        return lambda runs: train_in_turn(runs, engine, num_workers)
    if engine.is_ray or (num_jobs or 1) > 1:
        return lambda runs: train_at_once(runs, num_jobs, engine)
    return None


def train_at_once(
    runs: Runs,
    num_jobs: int | None,
    engine: Engine,
    *,
    hear: Callable[[str], None] = lambda _: None,
    failed: dict[str, str] | None = None,
) -> None:
    """Train runs, `num_jobs` at a time, and show how far they are.

    Where they share a GPU they share it at once. `hear` and `failed` are as in `train_runs`.
    """
    from plait.cli.display import Display
    from plait.scale.hiring import hired
    from plait.scale.running import train_runs

    num_left = len(runs.unfinished())
    if not num_left:  # nobody is hired for nothing
        for name in runs.wanted:
            hear(name)
        return
    if num_jobs is not None:  # those that nothing is left for take no threads from the others
        num_jobs = min(num_jobs, num_left)
    with Display() as display:
        ray = "starting Ray" if engine.address is None else "joining Ray"
        display.begin(ray if engine.is_ray else "starting")
        with hired(engine, num_jobs, runs.folder(), display.note, gpu=runs.use_gpu()) as crew:
            display.begin("training")
            overview = Overview(display.note)

            def end(name: str) -> None:
                overview.forget(name)
                hear(name)

            train_runs(runs, crew, hear=end, note=display.note, watch=overview.hear, failed=failed)


class Overview:
    """Says once a minute how far runs are that are trained at once."""

    def __init__(self, note: Callable[[str], None]):
        self._note = note
        self._places: dict[str, Place] = {}
        """Of runs that have told since it was said."""
        self._said = time.monotonic()

    def hear(self, name: str, place: Place) -> None:
        """Hear of one run, and speak of all where it is time."""
        from plait.cli.display import clock

        self._places[name] = place
        if (now := time.monotonic()) - self._said < OVERVIEW_S:
            return
        self._note(
            "; ".join(
                f"{name}: {p.stage} {p.step:,}/{p.num_steps:,}, {clock(p.seconds_left)} left"
                for name, p in self._places.items()
            )
        )
        self._said, self._places = now, {}

    def forget(self, name: str) -> None:
        """Speak no more of a run that is done."""
        self._places.pop(name, None)


def train_in_turn(runs: Runs, engine: Engine, num_workers: int) -> None:
    """Train runs one after the other, each by several workers of Ray, and show how far they are."""
    from plait.cli.display import Display
    from plait.cli.train import resumable
    from plait.scale.cluster import connected
    from plait.scale.together import train_together

    names = runs.unfinished()
    if not names:
        return
    with connected(engine):  # once for all
        for number, name in enumerate(names, 1):
            config, out = runs.wanted[name]
            with resumable(out, runs.command), Display() as display:
                display.note(f"{number} of {len(names)}: {name}")
                display.begin("loading")
                train_together(
                    config,
                    out,
                    engine,
                    num_workers,
                    data=runs.data,
                    resume=out.exists(),
                    command=runs.command,
                    listeners=[display],
                )
