"""Runs of an order are trained, here or at once, and their records told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from plait.reproduce import Run, Work
    from plait.scale import Engine


class Workers(NamedTuple):
    """Who makes the runs, and how many at once."""

    num_jobs: int | None
    engine: Engine

    def words(self) -> list[str]:
        """Return the options that ask for them."""
        jobs = ["--jobs", str(self.num_jobs)] if self.num_jobs else []
        return [*jobs, *self.engine.words()]


def make_records(
    work: Work,
    data: str | None,
    workers: Workers,
    command: str,
    say: Callable[[str], None] = typer.echo,
) -> dict[str, str]:
    """Make all that is still to be made; return the reasons of what failed.

    `command` is the one that goes on after a stop; `say` hears what each came to.
    """
    failed: dict[str, str] = {}
    _train(work, data, workers, command, failed, say)
    _combine(work, data, failed, say)
    work.tidy()
    return failed


def _train(
    work: Work,
    data: str | None,
    workers: Workers,
    command: str,
    failed: dict[str, str],
    say: Callable[[str], None],
) -> None:
    """Train what is still to be trained."""
    total = len(work.runs)
    if not total:
        say(f"{work.num_done} records are there already: nothing is left to train")
        return

    def hear(name: str) -> None:
        say(_describe(name, work.finish(work.runs[name])))

    if (workers.num_jobs or 1) > 1 or workers.engine.is_ray:
        from plait.cli.jobs import train_at_once
        from plait.scale.running import Runs

        wanted = {name: (run.config, run.folder) for name, run in work.runs.items()}
        runs = Runs(wanted, data, command)
        train_at_once(runs, workers.num_jobs, workers.engine, hear=hear, failed=failed)
        return
    for number, run in enumerate(work.runs.values(), 1):
        if _train_one(run, f"{number} of {total}", data, command, failed):
            hear(run.name)


def _train_one(
    run: Run, place: str, data: str | None, command: str, failed: dict[str, str]
) -> bool:
    """Train a run here, or go on with it; say whether it came to its end."""
    from plait.cli.display import Display
    from plait.cli.train import resumable
    from plait.errors import Interrupted, PlaitError
    from plait.training.runs import train

    with resumable(run.folder, command), Display() as display:
        display.note(f"{place}: {run.name}")
        display.begin("loading")
        try:
            train(
                run.config,
                run.folder,
                data=data,
                resume=run.folder.exists(),
                command=command,
                listeners=[display],
            )
        except Interrupted:
            raise
        except PlaitError as error:
            failed[run.name] = str(error)
            display.note(f"{run.name} failed: {error}")
            return False
    return True


def _combine(
    work: Work, data: str | None, failed: dict[str, str], say: Callable[[str], None]
) -> None:
    """Make the ensembles of what was trained."""
    from plait.cli.display import Display

    for ensemble in list(work.ensembles):
        if lost := [run.name for run in ensemble.runs.values() if run.name in failed]:
            failed[ensemble.name] = f"its member {lost[0]} failed"
            continue
        with Display() as display:
            display.begin("scoring")
            record = work.finish_ensemble(ensemble, data, display.scoring)
        say(_describe(ensemble.name, record))


def _describe(name: str, record: Mapping[str, Any]) -> str:
    from plait.cli.display import figure

    scores = record.get("dev")
    if scores is None:
        return f"{name}: no dev set to score"
    figures = "  ".join(f"{task} {figure(value)}" for task, value in scores["primary"].items())
    overall = figure(scores["summary"]["overall"])
    return f"{name}: {figures}  overall {overall}  ({record['seconds']:.0f} s)"
