"""Train rows of the reports with `plait train` and write a record of each run.

A run that has a record is skipped; an unfinished one is resumed. Once its record is written, the
run's folder is removed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait import PlaitError, read_recipe
from plait.config import flatten, lists_members, read_ensemble
from reproduction.published import HERE, Row, read_rows
from reproduction.records import RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from plait.config import RunConfig

# Settings that do not change the scores of a run.
_NEUTRAL: dict[str, Any] = dict.fromkeys(
    ("name", "about", "device", "graphs", "save_every", "log_every", "listeners", "search"), True
) | {"data": {"root", "hint"}}


RUNS = Path("runs/reproduction")
"""Folder that runs are trained in."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to train, besides the rows."""

    profile: str = "small"
    """A file of profiles/ that is laid over the recipes; `published` for the reports' encoder."""
    num_seeds: int = 1
    num_jobs: int = 1
    data: str | None = None
    overrides: tuple[str, ...] = ()
    each_alone: bool = False
    """Train each task of the rows alone, with `plait train --each-alone`."""
    records: Path = RECORDS
    runs: Path = RUNS

    @property
    def options(self) -> list[str]:
        """Overrides of every run: the profile and the user's."""
        path = HERE / "profiles" / f"{self.profile}.toml"
        if self.profile == "published":
            return list(self.overrides)
        if not path.is_file():
            raise PlaitError(f"there is no profile {self.profile!r}: {path} is missing")
        return [str(path), *self.overrides]


@dataclass(frozen=True, slots=True)
class Job:
    """One row with one seed."""

    recipe: str
    seed: int
    request: Request

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        alone = ["alone"] if self.request.each_alone else []
        return Path(self.request.runs, self.request.profile, self.recipe, *alone, str(self.seed))

    def record(self, task: str | None = None) -> Path:
        """Return the path of the record of the run, or of one task that was trained alone."""
        folder = self.request.records / self.request.profile / self.recipe
        return (folder / "alone" / task if task else folder) / f"seed-{self.seed}.json"

    def is_done(self) -> bool:
        """Say whether its records exist; refuse a record of other settings."""
        if self.request.each_alone:
            config = read_recipe(self.recipe, self.overrides)
            return all(self.record(task).is_file() for task in config.trained_tasks)
        if not self.record().is_file():
            return False
        if not lists_members(self.recipe):
            check_record(self.record(), read_recipe(self.recipe, self.overrides))
        return True

    @property
    def overrides(self) -> list[str]:
        """All overrides of the run."""
        return [*self.request.options, f"seed={self.seed}"]

    def command(self) -> list[str]:
        """Return the command that trains it."""
        words = [sys.executable, "-m", "plait", "train", self.recipe, "--out", str(self.folder)]
        words += ["--data", self.request.data] if self.request.data else []
        words += [word for override in self.overrides for word in ("-o", override)]
        words += ["--each-alone"] if self.request.each_alone else []
        return [*words, "--resume"] if self.folder.exists() else words


def find_rows(words: Iterable[str]) -> list[Row]:
    """Return the rows that words name: a system (`a`), a table (`a/2`) or a recipe; all for none.

    An alias stands for the run that it repeats.
    """
    known = read_rows()
    found: dict[str, Row] = {}
    for word in words:
        named = [row for row in known.values() if word.strip("/").lower() in _names(row)]
        if not named:
            raise PlaitError(f"no row is called {word!r}: name a system (a), table (a/2) or recipe")
        found |= {row.run: known[row.run] for row in named}
    return list(found.values()) or [row for row in known.values() if row.alias is None]


def _names(row: Row) -> set[str]:
    system = row.system.lower()
    return {system, f"{system}/{row.table}", row.recipe, row.recipe.partition("/")[0]}


def run_rows(words: Sequence[str], request: Request) -> list[str]:
    """Train what the rows named by `words` still lack; return the names of failed runs."""
    jobs = [job for job in _list_jobs(find_rows(words), request) if not job.is_done()]
    print(f"{len(jobs)} runs to train")
    with ThreadPoolExecutor(request.num_jobs) as pool:
        codes = list(pool.map(_train, jobs))
    return [f"{job.recipe}, seed {job.seed}" for job, code in zip(jobs, codes, strict=True) if code]


def _list_jobs(rows: Iterable[Row], request: Request) -> Iterator[Job]:
    for row in rows:
        is_ensemble = lists_members(row.recipe)
        if is_ensemble and request.each_alone:
            continue
        if is_ensemble:
            members = read_ensemble(row.recipe, request.options).members
            first = next(iter(members.values())).seed
        else:
            first = read_recipe(row.recipe, request.options).seed
        for seed in range(first, first + request.num_seeds):
            yield Job(row.recipe, seed, request)


def _train(job: Job) -> int:
    print(f"training {job.recipe}, seed {job.seed}", flush=True)
    code = subprocess.run(job.command(), check=False).returncode
    if code == 0:
        if job.request.each_alone:
            for folder in sorted(path.parent for path in job.folder.glob("*/scores.json")):
                write_record(job.record(folder.name), make_record(folder, job, folder.name))
        else:
            write_record(job.record(), make_record(job.folder, job))
        shutil.rmtree(job.folder)
    return code


# --- records -----------------------------------------------------------------------------


def make_record(run: Path, job: Job, alone: str | None = None) -> dict[str, Any]:
    """Return the record of a finished run or ensemble."""
    scores = _read(run / "scores.json")
    if "members" in scores:
        folders = {name: run / "members" / name for name in scores["members"]}
        configs = {name: read_recipe(path / "recipe.toml") for name, path in folders.items()}
        settings = {name: result_settings(config) for name, config in configs.items()}
        first, curves = next(iter(folders.values())), []
    else:
        settings = result_settings(read_recipe(run / "recipe.toml"))
        first, curves = run, _read_curves(run)
    info = _read(first / "run.json")
    kept = ("how", "members", "steps", "best_step", "seconds", "peak_memory_mib", "dev", "baseline")
    return {
        "recipe": job.recipe,
        "profile": job.request.profile,
        "alone": alone,
        "seed": job.seed,
        "overrides": list(job.request.overrides),
        "settings": settings,
        **{key: scores[key] for key in kept if key in scores},
        "versions": {key: info[key] for key in ("plait", "python", "torch")},
        "hardware": info["device"],
        "precision": info["precision"],
        "encoder": info["encoder"],
        "data": {
            split: {task: counts["rows"] for task, counts in info["data"][split].items()}
            for split in ("train", "dev")
            if split in info["data"]
        },
        "curves": curves,
    }


def result_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that change the scores of a run."""
    table: dict[str, Any] = config.model_dump(mode="json", exclude_none=True, exclude=_NEUTRAL)
    for task in table["tasks"].values():
        for key in ("about", "licence"):
            task.pop(key, None)
    return table


def check_record(path: Path, config: RunConfig) -> None:
    """Refuse a record that was made with other settings than the recipe has now."""
    then = flatten(_read(path)["settings"])
    now = flatten(result_settings(config))
    # Only what the recipe sets: the run chose the rest from its data.
    given = flatten(config.model_dump(mode="json", exclude_unset=True))
    shared = then.keys() & now.keys() & given.keys() - {"encoder.source"}
    if changed := sorted(key for key in shared if then[key] != now[key]):
        raise PlaitError(
            f"{path} was made with other settings ({', '.join(changed[:3])}): remove it to train "
            "the row again"
        )


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record, one line for each key."""
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _read_curves(run: Path) -> list[dict[str, Any]]:
    """Return the dev scores of every evaluation."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    events = (json.loads(line) for line in lines)
    return [
        {"step": event["step"], "overall": event["summary"]["overall"], "dev": event["metrics"]}
        for event in events
        if event["event"] == "scores" and event["split"] == "dev"
    ]


def _read(path: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return values
