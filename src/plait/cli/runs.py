"""Training one run or several, with progress on the screen and a hint how to resume."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from plait.config import RunConfig
    from plait.scale import Jobs
    from plait.scale.running import Place, Runs
    from plait.training.run import Outcome

OVERVIEW_S = 60.0
"""Seconds between two lines about runs that are trained at the same time."""


def train_runs(
    runs: Runs, jobs: Jobs, *, hear: Callable[[str], None] = lambda _: None
) -> dict[str, str]:
    """Train the unfinished runs and return the error of each run that failed, by name.

    A run that fails does not stop the others. `hear` is called with the name of each finished run.
    """
    failed: dict[str, str] = {}
    if jobs.workers > 1:
        _train_in_turn(runs, _on_ray(jobs), failed, hear)
    elif jobs.is_several:
        _train_at_once(runs, jobs, failed, hear)
    else:
        _train_in_turn(runs, _train_here, failed, hear)
    return failed


def raise_failed(failed: Mapping[str, str]) -> None:
    """Raise an error that names the runs that failed, if any did."""
    from plait.errors import RunError, counted

    if failed:
        raise RunError(f"{counted(len(failed), 'run')} failed: {', '.join(failed)} (errors above)")


def _train_here(config: RunConfig, out: Path, **options: Any) -> Outcome:
    from plait.training.runs import train

    return train(config, out, **options)


def _on_ray(jobs: Jobs) -> Callable[..., Outcome]:
    def start(config: RunConfig, out: Path, **options: Any) -> Outcome:
        from plait.scale.together import train_together

        return train_together(config, out, jobs.engine, jobs.workers, **options)

    return start


def _train_in_turn(
    runs: Runs,
    start: Callable[..., Outcome],
    failed: dict[str, str],
    hear: Callable[[str], None],
) -> None:
    """Train the runs one after the other."""
    from plait.cli.display import Display
    from plait.errors import Interrupted, PlaitError

    names = runs.unfinished()
    for name in runs.wanted:
        if name not in names:
            hear(name)
    for number, name in enumerate(names, 1):
        config, out = runs.wanted[name]
        done = len(runs.wanted) - len(names) + number - 1
        with resumable(out, runs.command, done), Display() as display:
            display.note(f"run {number} of {len(names)}: {name}")
            display.begin("loading")
            try:
                start(
                    config,
                    out,
                    data=runs.data,
                    resume=out.exists(),
                    command=runs.command,
                    listeners=[display],
                )
            except Interrupted:
                raise
            except PlaitError as error:
                failed[name] = str(error)
                display.note(f"{name} failed: {error}")
                continue
        hear(name)


def _train_at_once(
    runs: Runs, jobs: Jobs, failed: dict[str, str], hear: Callable[[str], None]
) -> None:
    """Train the runs at the same time; on one GPU they share it."""
    from plait.cli.display import Display
    from plait.scale.factory import open_pool
    from plait.scale.running import train_runs as train_with

    num_left = len(runs.unfinished())
    if not num_left:
        for name in runs.wanted:
            hear(name)
        return
    # More processes than unfinished runs would take threads from the others.
    at_once = jobs.at_once and min(jobs.at_once, num_left)
    with Display() as display:
        ray = "starting Ray" if jobs.engine.address is None else "joining Ray"
        display.begin(ray if jobs.engine.is_ray else "starting")
        with open_pool(
            jobs.engine, at_once, runs.folder(), display.note, gpu=runs.use_gpu()
        ) as pool:
            display.begin("training")
            overview = Overview(display.note)

            def end(name: str) -> None:
                overview.forget(name)
                hear(name)

            train_with(runs, pool, hear=end, note=display.note, watch=overview.hear, failed=failed)


class Overview:
    """Prints the progress of all runs that are trained at the same time, once a minute."""

    def __init__(self, note: Callable[[str], None]):
        self._note = note
        self._places: dict[str, Place] = {}
        """Progress received since the last line."""
        self._printed = time.monotonic()

    def hear(self, name: str, place: Place) -> None:
        """Store the progress of one run; print all of it when a minute has passed."""
        from plait.cli.display import clock

        self._places[name] = place
        if (now := time.monotonic()) - self._printed < OVERVIEW_S:
            return
        self._note(
            "; ".join(
                f"{name}: {p.stage} {p.step:,}/{p.num_steps:,}, {clock(p.seconds_left)} left"
                for name, p in self._places.items()
            )
        )
        self._printed, self._places = now, {}

    def forget(self, name: str) -> None:
        """Remove a run that is finished."""
        self._places.pop(name, None)


@contextmanager
def resumable(out: Path, command: str, finished: int = 0) -> Iterator[None]:
    """On Ctrl-C outside the training loop, say what is saved in `out` and how to continue.

    `finished` is the number of runs of the same command that are already finished.
    """
    try:
        yield
    except KeyboardInterrupt:
        from plait.errors import Interrupted, counted

        if (out / "checkpoint.safetensors").exists():
            message = f"stopped; continue from the last checkpoint with: {command}"
        elif (out / "recipe.toml").exists():
            message = f"stopped before the first checkpoint; start again with: {command}"
        elif finished:
            done = counted(finished, "run is", "runs are")
            message = f"stopped; {done} finished. Continue with: {command}"
        else:
            message = "stopped before training began; nothing was written"
        raise Interrupted(message) from None
