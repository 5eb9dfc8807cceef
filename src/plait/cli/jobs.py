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
    from collections.abc import Callable, Mapping

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
    runs: Mapping[str, tuple[RunConfig, Path]],
    data: str | None,
    num_jobs: int,
    command: str,
    *,
    hear: Callable[[str], None] | None = None,
    failed: dict[str, str] | None = None,
) -> None:
    """Train runs into their folders, `num_jobs` at a time; finished ones stay as they are.

    Where they share a GPU they share it at once. `hear` is called with the name of each that is
    done. One that fails ends the others, which save what they have; or, where there is a table
    of the `failed`, goes into it with the reason, and the others go on.
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
            queue = _Queue(runs, data, num_jobs, Path(folder), active, display)
            queue.work_off(hear, failed)
        except KeyboardInterrupt:
            raise Interrupted(f"stopped; go on with: {command}") from None
        finally:
            _end(active)
            signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


@dataclass(slots=True)
class _Queue:
    runs: Mapping[str, tuple[RunConfig, Path]]
    data: str | None
    num_jobs: int
    folder: Path
    """Of recipes and logs."""
    active: list[_Job]
    display: Display

    def work_off(self, hear: Callable[[str], None] | None, failed: dict[str, str] | None) -> None:
        """Keep as many processes busy as there may be until all runs are done."""
        runs, display = self.runs, self.display
        waiting = [name for name, (_, out) in runs.items() if not (out / "scores.json").exists()]
        done = len(runs) - len(waiting)
        if hear is not None:
            for name in runs.keys() - set(waiting):
                hear(name)
        display.note(f"training {len(waiting)} runs, {self.num_jobs} at once: {', '.join(waiting)}")
        display.begin("training")
        while waiting or self.active:
            while waiting and len(self.active) < self.num_jobs:
                name = waiting.pop(0)
                self.active.append(self._start(name, *runs[name]))
            for job in [job for job in self.active if job.process.poll() is not None]:
                self.active.remove(job)
                done += 1
                if job.process.returncode:
                    self._fail(job, failed)
                else:
                    display.note(f"{job.name} is done, {done} of {len(runs)}")
                    if hear is not None:
                        hear(job.name)
            time.sleep(0.1)

    def _start(self, name: str, config: RunConfig, out: Path) -> _Job:
        from plait.config import to_toml

        recipe = self.folder / f"{len(list(self.folder.glob('*.toml')))}.toml"
        recipe.write_text(to_toml(config), encoding="utf-8")
        words = [sys.executable, "-m", "plait", "train", str(recipe), "--out", str(out)]
        words += ["--data", self.data] if self.data else []
        words += ["--resume"] if out.exists() else []
        share = str(max(1, (os.cpu_count() or 1) // self.num_jobs))
        path = recipe.with_suffix(".log")
        with path.open("wb") as log:
            process = subprocess.Popen(
                words, stdout=log, stderr=log, env={"OMP_NUM_THREADS": share, **os.environ}
            )
        return _Job(name, process, path)

    def _fail(self, job: _Job, failed: dict[str, str] | None) -> None:
        from plait.errors import RunError

        said = job.log.read_text(encoding="utf-8", errors="replace")
        if "Traceback (most recent call last)" in said:  # a crash, of a plugin perhaps
            typer.echo(said, err=True)
        reason = _last_line(said)
        if failed is None:
            raise RunError(f"{job.name}: {reason}")
        failed[job.name] = reason
        self.display.note(f"{job.name} failed: {reason}")


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
