"""`--jobs`: several runs at once, each a process of its own that trains as `plait train` does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.cli.display import Display
    from plait.config import RunConfig

JobsOption = Annotated[
    int, typer.Option("--jobs", min=1, help="Runs at once: members, or with --each-alone tasks.")
]


@dataclass(slots=True)
class _Job:
    name: str
    process: subprocess.Popen[bytes]
    log: Path


def train_at_once(
    runs: Mapping[str, tuple[RunConfig, Path]], data: str | None, num_jobs: int, command: str
) -> None:
    """Train runs into their folders, `num_jobs` at a time; finished ones stay as they are.

    Where they share a GPU they share it at once. One that fails ends the others, which save what
    they have.
    """
    from plait.cli.display import Display
    from plait.errors import Interrupted
    from plait.training.sharing import shared_gpu

    active: list[_Job] = []
    with (
        shared_gpu(num_jobs),
        tempfile.TemporaryDirectory(prefix="plait-jobs-") as folder,
        Display() as display,
    ):
        before = signal.signal(signal.SIGTERM, _interrupt)  # a polite kill is a Ctrl-C
        try:
            _work_off(runs, data, num_jobs, Path(folder), active, display)
        except KeyboardInterrupt:
            raise Interrupted(f"stopped; go on with: {command}") from None
        finally:
            _end(active)
            signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _work_off(
    runs: Mapping[str, tuple[RunConfig, Path]],
    data: str | None,
    num_jobs: int,
    folder: Path,
    active: list[_Job],
    display: Display,
) -> None:
    from plait.errors import RunError

    waiting = [name for name, (_, out) in runs.items() if not (out / "scores.json").exists()]
    done = len(runs) - len(waiting)
    display.note(f"training {len(waiting)} runs, {num_jobs} at once: {', '.join(waiting)}")
    display.begin("training")
    while waiting or active:
        while waiting and len(active) < num_jobs:
            name = waiting.pop(0)
            active.append(_start(name, *runs[name], data, num_jobs, folder))
        for job in [job for job in active if job.process.poll() is not None]:
            active.remove(job)
            if job.process.returncode:
                said = job.log.read_text(encoding="utf-8", errors="replace")
                if "Traceback (most recent call last)" in said:  # a crash, of a plugin perhaps
                    typer.echo(said, err=True)
                raise RunError(f"{job.name}: {_last_line(said)}")
            done += 1
            display.note(f"{job.name} is done, {done} of {len(runs)}")
        time.sleep(0.1)


def _start(
    name: str, config: RunConfig, out: Path, data: str | None, num_jobs: int, folder: Path
) -> _Job:
    from plait.config import to_toml

    recipe = folder / f"{len(list(folder.iterdir()))}.toml"
    recipe.write_text(to_toml(config), encoding="utf-8")
    words = [sys.executable, "-m", "plait", "train", str(recipe), "--out", str(out)]
    words += ["--data", data] if data else []
    words += ["--resume"] if out.exists() else []
    share = str(max(1, (os.cpu_count() or 1) // num_jobs))
    path = recipe.with_suffix(".log")
    with path.open("wb") as log:
        process = subprocess.Popen(
            words, stdout=log, stderr=log, env={"OMP_NUM_THREADS": share, **os.environ}
        )
    return _Job(name, process, path)


def _last_line(said: str) -> str:
    """Return what a process said last: why it failed, in a sentence."""
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1].removeprefix("plait: ") if lines else "its process ended without a word"


def _end(active: list[_Job]) -> None:
    """Let what still runs save itself."""
    for job in active:
        if job.process.poll() is None:
            job.process.send_signal(signal.SIGINT)
    for job in active:
        job.process.wait()
