"""`--jobs` and `--engine`: several runs at once, as processes here or on a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.engines import Engine
    from plait.engines.running import Runs

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
    from plait.engines import Engine
    from plait.engines.cluster import check_engine

    engine = Engine(name, address, cpus, gpus)
    check_engine(engine)
    return engine


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
    from plait.engines.hiring import hired
    from plait.engines.running import train_runs

    with Display() as display:
        if engine.is_ray:
            display.begin("starting Ray" if engine.address is None else "joining Ray")
        with hired(engine, num_jobs, runs.folder(), display.note, gpu=runs.use_gpu()) as crew:
            display.begin("training")
            train_runs(runs, crew, hear=hear, note=display.note, failed=failed)
