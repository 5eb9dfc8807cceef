"""Rows and seeds become the runs that are still to make, and what is kept of each."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from plait.config import lists_members, read_ensemble, read_recipe
from plait.errors import RunError, UsageError
from plait.inference.ensemble import load, write_ensemble
from plait.reproduce.records import (
    check_record,
    make_ensemble_record,
    make_record,
    write_record,
)
from plait.training.alone import plan_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from plait.config import RunConfig
    from plait.inference.predictor import Progress
    from plait.reproduce.rows import Row
    from plait.training.amounts import Amounts


OWN = "own"
"""Stands for the profile where recipes keep their own encoders."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run to be made."""

    name: str
    config: RunConfig
    recipe: str
    folder: Path
    """Where it is trained; gone once its record is written, unless it is to be kept."""
    record: Path
    alone: str | None = None


@dataclass(frozen=True, slots=True)
class Members:
    """An ensemble to be made once its members are."""

    name: str
    recipe: str
    runs: dict[str, Run]
    """By the members' names."""
    how: Literal["mode", "mean"]
    folder: Path
    record: Path


@dataclass(frozen=True, slots=True)
class Order:
    """What is asked for, apart from which rows."""

    out: Path
    """Folder of the records."""
    runs: Path
    """Folder that runs are trained in."""
    profile: str | None = "small"
    """None for the encoders that recipes name themselves."""
    num_seeds: int = 1
    first_seed: int | None = None
    """The recipe's own unless given."""
    overrides: tuple[str, ...] = ()
    alone: bool = False
    """Each task of the rows by itself, instead of the rows."""
    keep: bool = False
    """Whether runs stay once their records are written."""

    @property
    def place(self) -> str:
        """What records call the profile, and the folder that they are in."""
        return self.profile or OWN

    def seeds(self, own: int) -> range:
        """Return the seeds of a row whose recipe has a seed of its own."""
        first = own if self.first_seed is None else self.first_seed
        return range(first, first + self.num_seeds)


@dataclass(slots=True)
class Work:
    """What an order comes to."""

    order: Order
    runs: dict[str, Run] = field(default_factory=dict)
    """Still to be made, by name."""
    ensembles: list[Members] = field(default_factory=list)
    """Still to be made."""
    num_done: int = 0
    """Records that are there already."""

    def finish(self, run: Run) -> dict[str, Any]:
        """Keep a finished run's record; drop the run, unless somebody still wants it."""
        if not run.record.exists():
            record = make_record(
                run.folder,
                recipe=run.recipe,
                profile=self.order.place,
                overrides=self.order.overrides,
                alone=run.alone,
            )
            write_record(run.record, record)
        wanted = any(run in ensemble.runs.values() for ensemble in self.ensembles)
        if not wanted and not self.order.keep:
            shutil.rmtree(run.folder)
        return _read(run.record)

    def finish_ensemble(
        self, ensemble: Members, data: str | None, progress: Progress
    ) -> dict[str, Any]:
        """Score members that are all trained as one, keep the record and drop the runs."""
        folders = [run.folder for run in ensemble.runs.values()]
        began = time.monotonic()
        write_ensemble(folders, ensemble.folder, ensemble.how)
        scores = load(ensemble.folder).watched(progress).evaluate("dev", data=data).to_json()
        record = make_ensemble_record(
            {name: _read(run.record) for name, run in ensemble.runs.items()},
            scores,
            recipe=ensemble.recipe,
            profile=self.order.place,
            how=ensemble.how,
            seconds=time.monotonic() - began,
            overrides=self.order.overrides,
        )
        write_record(ensemble.record, record)
        self.ensembles.remove(ensemble)
        if not self.order.keep:
            shutil.rmtree(ensemble.folder)
            for run in ensemble.runs.values():
                if not any(run in other.runs.values() for other in self.ensembles):
                    shutil.rmtree(run.folder, ignore_errors=True)
        return record

    def tidy(self) -> None:
        """Remove the folders that runs were in and nothing is in now."""
        inside = (path for path in self.order.runs.rglob("*") if path.is_dir())
        for folder in [*sorted(inside, reverse=True), self.order.runs]:
            with suppress(OSError):  # something is in it, or it never was
                folder.rmdir()


def plan_work(
    rows: Iterable[Row], order: Order, count_rows: Callable[[RunConfig], Amounts]
) -> Work:
    """Find out which runs of rows are still to be made, and in which folders.

    `count_rows` reads how much there is to train on, which the budget of a task alone follows.
    """
    work = Work(order)
    for row in rows:
        if lists_members(row.source):
            if not order.alone:
                _plan_ensemble(work, row)
            continue
        first = read_recipe(row.source, order.overrides, profile=order.profile)
        alone = plan_alone(first, count_rows(first)) if order.alone else {}
        for seed in order.seeds(first.seed):
            if not order.alone:
                _add(work, _run(order, row.recipe, _seeded(first, seed)))
            for task, budget in alone.items():
                _add(work, _run(order, row.recipe, _seeded(budget.config, seed), task))
    return work


def _plan_ensemble(work: Work, row: Row) -> None:
    order = work.order
    ensemble = read_ensemble(row.source, order.overrides, profile=order.profile)
    if ensemble.calibrate:
        raise UsageError(
            f"{row.recipe} calibrates its members, which rows are not rerun with; train it by "
            "`plait train`"
        )
    first = next(iter(ensemble.members.values())).seed
    for seed in order.seeds(first):
        members = {name: _seeded(c, c.seed - first + seed) for name, c in ensemble.members.items()}
        record = _record(order, row.recipe, seed)
        if record.exists():
            check_record(record, replace(ensemble, members=members))
            work.num_done += 1
            continue
        runs = {name: _run(order, config.name, config) for name, config in members.items()}
        for run in runs.values():
            if run.record.exists():  # but its model is gone, unless it was kept
                check_record(run.record, run.config)
            work.runs[run.name] = run
        name = f"{row.recipe}, seed {seed}"
        folder = order.runs / "ensembles" / row.recipe / f"seed-{seed}"
        work.ensembles.append(Members(name, row.recipe, runs, ensemble.how, folder, record))


def _add(work: Work, run: Run) -> None:
    if run.name in work.runs:  # a member's, made for its ensemble
        return
    if run.record.exists():
        check_record(run.record, run.config)
        work.num_done += 1
        return
    work.runs[run.name] = run


def _seeded(config: RunConfig, seed: int) -> RunConfig:
    return config.model_copy(update={"seed": seed})


def _run(order: Order, recipe: str, config: RunConfig, alone: str | None = None) -> Run:
    record = _record(order, recipe, config.seed, alone)
    folder = order.runs / record.relative_to(order.out).with_suffix("")
    name = f"{recipe}{f' ({alone} alone)' if alone else ''}, seed {config.seed}"
    return Run(name, config, recipe, folder, record, alone)


def _record(order: Order, recipe: str, seed: int, alone: str | None = None) -> Path:
    folder = order.out / order.place / recipe
    return (folder / "alone" / alone if alone else folder) / f"seed-{seed}.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{path} is no record; remove it to run the row again") from error
    return record
