"""`--jobs` and `--engine`: several runs at once, as processes here or on a Ray cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from plait.cli.display import Display
    from plait.config import RunConfig
    from plait.engines import Crew, Engine

JobsOption = Annotated[
    int, typer.Option("--jobs", min=1, help="Runs at once: members, or with --each-alone tasks.")
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
        help="GPUs of each run on Ray, such as 0.5; 1 unless given, where there are any.",
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
    runs: Mapping[str, tuple[RunConfig, Path]],
    data: str | None,
    num_jobs: int | None,
    command: str,
    *,
    hear: Callable[[str], None] | None = None,
    failed: dict[str, str] | None = None,
    engine: Engine | None = None,
) -> None:
    """Train runs into their folders, `num_jobs` at a time; finished ones stay as they are.

    Where they share a GPU they share it at once. `hear` is called with the name of each that is
    done. One that fails ends the others, which save what they have; or, where there is a table
    of the `failed`, goes into it with the reason, and the others go on. `engine` is this machine
    unless given.
    """
    from plait.cli.display import Display
    from plait.errors import Interrupted

    with Display() as display, _hired(runs, data, num_jobs, engine, display) as hands:
        before = signal.signal(signal.SIGTERM, _interrupt)  # a polite kill is a Ctrl-C
        try:
            _Queue(runs, hands, display).work_off(hear, failed)
        except KeyboardInterrupt:
            raise Interrupted(f"stopped; go on with: {command}") from None
        finally:
            hands.end()
            signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def _hired(
    runs: Mapping[str, tuple[RunConfig, Path]],
    data: str | None,
    num_jobs: int | None,
    engine: Engine | None,
    display: Display,
) -> Iterator[_Hands]:
    if engine is not None and engine.is_ray:
        from plait.engines.hiring import hired

        display.begin("starting Ray" if engine.address is None else "joining Ray")
        folders = [str(out.absolute().parent) for _, out in runs.values()]
        common = Path(os.path.commonpath(folders))
        with hired(engine, num_jobs, common, display.note) as crew:
            yield _OnRay(crew, data)
        return
    from plait.training.sharing import shared_gpu

    with (
        shared_gpu(num_jobs or 1),
        tempfile.TemporaryDirectory(prefix="plait-jobs-") as folder,
    ):
        yield _Processes(num_jobs or 1, data, Path(folder))


@dataclass(slots=True)
class _Queue:
    runs: Mapping[str, tuple[RunConfig, Path]]
    hands: _Hands
    display: Display

    def work_off(self, hear: Callable[[str], None] | None, failed: dict[str, str] | None) -> None:
        """Keep as many hands busy as there are until all runs are done."""
        runs, display, most = self.runs, self.display, self.hands.num_places
        waiting = [name for name, (_, out) in runs.items() if not (out / "scores.json").exists()]
        done, num_active = len(runs) - len(waiting), 0
        if hear is not None:
            for name in runs.keys() - set(waiting):
                hear(name)
        display.note(f"training {len(waiting)} runs, {most} at once: {', '.join(waiting)}")
        display.begin("training")
        while waiting or num_active:
            while waiting and num_active < most:
                name = waiting.pop(0)
                self.hands.start(name, *runs[name])
                num_active += 1
            for name, reason in self.hands.finished():
                done, num_active = done + 1, num_active - 1
                if reason is not None:
                    self._fail(name, reason, failed)
                    continue
                display.note(f"{name} is done, {done} of {len(runs)}")
                if hear is not None:
                    hear(name)

    def _fail(self, name: str, reason: str, failed: dict[str, str] | None) -> None:
        from plait.errors import RunError

        if failed is None:
            raise RunError(f"{name}: {reason}")
        failed[name] = reason
        self.display.note(f"{name} failed: {reason}")


class _Hands(ABC):
    """Whoever trains runs."""

    num_places: int
    """Runs at once."""

    @abstractmethod
    def start(self, name: str, config: RunConfig, out: Path) -> None:
        """Begin a run, or go on with one that has a folder."""

    @abstractmethod
    def finished(self) -> list[tuple[str, str | None]]:
        """Wait a little; return the runs that ended meanwhile, each with why it failed, if so."""

    @abstractmethod
    def end(self) -> None:
        """Let what still runs save itself."""


# --- processes of this machine -----------------------------------------------------------


@dataclass(slots=True)
class _Job:
    name: str
    process: subprocess.Popen[bytes]
    log: Path


class _Processes(_Hands):
    """A process for each run, which trains as `plait train` does."""

    def __init__(self, num_places: int, data: str | None, folder: Path):
        self.num_places, self.data, self.folder = num_places, data, folder
        self.active: list[_Job] = []

    def start(self, name: str, config: RunConfig, out: Path) -> None:
        """Begin a run's process; its recipe and what it says are in a temporary folder."""
        from plait.config import to_toml

        recipe = self.folder / f"{len(list(self.folder.glob('*.toml')))}.toml"
        recipe.write_text(to_toml(config), encoding="utf-8")
        words = [sys.executable, "-m", "plait", "train", str(recipe), "--out", str(out)]
        words += ["--data", self.data] if self.data else []
        words += ["--resume"] if out.exists() else []
        share = str(max(1, (os.cpu_count() or 1) // self.num_places))
        path = recipe.with_suffix(".log")
        with path.open("wb") as log:
            process = subprocess.Popen(
                words, stdout=log, stderr=log, env={"OMP_NUM_THREADS": share, **os.environ}
            )
        self.active.append(_Job(name, process, path))

    def finished(self) -> list[tuple[str, str | None]]:
        """Look which processes are gone."""
        time.sleep(0.1)
        over = [job for job in self.active if job.process.poll() is not None]
        for job in over:
            self.active.remove(job)
        return [(job.name, _read_reason(job) if job.process.returncode else None) for job in over]

    def end(self) -> None:
        """Send each a polite kill: a Ctrl-C at the terminal has reached them all already, and
        a second one would not let them save.
        """
        for job in self.active:
            job.process.terminate()
        for job in self.active:
            job.process.wait()


def _read_reason(job: _Job) -> str:
    """Return what a process said last: why it failed, in a sentence."""
    said = job.log.read_text(encoding="utf-8", errors="replace")
    if "Traceback (most recent call last)" in said:  # a crash, of a plugin perhaps
        typer.echo(said, err=True)
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1].removeprefix("plait: ") if lines else "its process ended without a word"


# --- Ray ---------------------------------------------------------------------------------


class _OnRay(_Hands):
    """A task of a cluster for each run."""

    def __init__(self, crew: Crew, data: str | None):
        self.crew, self.data, self.num_places = crew, data, crew.num_places

    def start(self, name: str, config: RunConfig, out: Path) -> None:
        """Hand a run to the cluster."""
        from plait.engines.running import RunJob, find_paths, train_run

        job = RunJob(config, out.absolute(), self.data, find_paths([config], self.data))
        self.crew.start(name, train_run, job)

    def finished(self) -> list[tuple[str, str | None]]:
        """Wait for a last message."""
        return [
            (name, None if message[0] == "done" else message[-1])
            for name, message, _ in self.crew.hear()
        ]

    def end(self) -> None:
        """Interrupt what runs, and wait until it has saved itself."""
        self.crew.stop()
        while self.crew.names():
            self.crew.hear()
