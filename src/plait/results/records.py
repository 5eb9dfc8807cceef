"""Files of numbers that runs left behind become checked records.

results/reproduce/PROFILE/RECIPE/seed-N.json              a row of a report
results/reproduce/PROFILE/RECIPE/alone/TASK/seed-N.json   one of its tasks, trained by itself
results/reproduce/PROFILE/held.json                       how long hardware was held for all that
results/best/NAME.json                                    a model worth keeping
results/best/log.json                                     what was tried on the way to it
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from plait.errors import DataError, UsageError, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SUMMARIES = ("sum", "mean", "overall")

FALL = 0.1
"""What a run's `overall` must lose by its end to be spoken of."""
GUESS, UNRELATED = 0.01, 0.05
"""How little above the most frequent class, or a correlation of 0, is no better than guessing."""

T = TypeVar("T")


class _Part(BaseModel):
    """Part of a file; keys that the page has no use for are left aside."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class TaskFigures(_Part):
    """Dev figures of one task; null where a figure does not exist."""

    kind: str
    num_examples: int = Field(ge=1)
    metrics: dict[str, float | None]
    per_class: list[dict[str, Any]] = []
    confusion: list[list[int]] | None = None


class DevFigures(_Part):
    """Dev figures of a run."""

    tasks: dict[str, TaskFigures]
    primary: dict[str, float | None]
    summary: dict[str, float | None]

    def figure(self, name: str) -> float | None:
        """Return a task's figure, or a summary of all; none where there is none."""
        return self.summary.get(name) if name in SUMMARIES else self.primary.get(name)


class MemberFigures(_Part):
    """Dev figures of an ensemble's member."""

    primary: dict[str, float | None] = {}
    summary: dict[str, float | None]


class Guessed(_Part):
    """Dev figures of guessing; null where a constant answer has none."""

    primary: dict[str, float | None] = {}


class Point(_Part):
    """One evaluation on the way."""

    step: int
    overall: float | None = None


class Record(_Part):
    """What one training run came to."""

    recipe: str
    profile: str
    alone: str | None = None
    """The one task it was trained on, where it is the baseline of a row."""
    seed: int
    overrides: list[str] = []
    settings: dict[str, Any] = {}
    """Of an ensemble, each member's by its name."""
    steps: int | None = None
    best_step: int | None = None
    seconds: float | None = None
    peak_memory_mib: float | None = None
    versions: dict[str, str] = {}
    hardware: str = "not said"
    precision: str = ""
    encoder: dict[str, Any] = {}
    data: dict[str, dict[str, int]] = {}
    dev: DevFigures
    baseline: Guessed = Guessed()
    """Dev figures of guessing: the most frequent class, the mean score."""
    curves: list[Point] = []
    members: dict[str, MemberFigures] = {}
    """Of an ensemble, each by itself."""

    @property
    def fall(self) -> tuple[Point, Point] | None:
        """The evaluation of what was kept and the last, where the run ended far below it."""
        known = [(point.overall, point) for point in self.curves if point.overall is not None]
        kept = [pair for pair in known if pair[1].step == self.best_step]
        if not kept:
            return None
        (high, best), (low, last) = kept[0], known[-1]
        return (best, last) if high - low >= FALL else None

    @property
    def guesses(self) -> bool:
        """Whether it is no better than guessing in any task that it trains: it fell apart."""
        trained = [task for task in self.dev.tasks if self.trains(task)]
        guessed = self.baseline.primary
        return bool(trained) and all(
            task in guessed and _is_guess(self.dev.figure(task), guessed[task]) for task in trained
        )

    def trains(self, figure: str) -> bool:
        """Say whether a figure is of trained heads alone: of a task, or of all for a summary.

        An ensemble's members and records that do not tell their settings count as trained.
        """
        stages, train = self.settings.get("stages", ()), self.settings.get("train", {})
        if not stages:
            return True
        own = self.settings.get("stage", {})
        taken = [own.get(name, {}).get("tasks") or train.get("tasks") for name in stages]
        if not all(taken):  # one of them takes all
            return True
        trained = {task for tasks in taken for task in tasks}
        return set(self.dev.tasks if figure in SUMMARIES else [figure]) <= trained

    def adds_rows(self, task: str) -> bool:
        """Say whether a task was trained on more files than one."""
        return len(self.settings.get("tasks", {}).get(task, {}).get("train", ())) > 1


def _is_guess(value: float | None, guessed: float | None) -> bool:
    return value is None or value <= (UNRELATED if guessed is None else guessed + GUESS)


class BestModel(_Part):
    """A model worth keeping, and how it was come by."""

    name: str
    about: str
    caution: str = ""
    """What to have in mind with its figures, such as data that its encoder has seen."""
    parameters: int | float | str | None = None
    how_chosen: str = ""
    goal: float | None = None
    """The overall that was hoped for, set before anything was trained."""
    dev: DevFigures
    interval: dict[str, tuple[float, float]] = {}
    quora_without_implied: float | None = None
    seconds: float | None = None
    hardware: str = "not said"

    @property
    def lacks(self) -> float:
        """How far below its goal the model is; 0 where it is not."""
        overall = self.dev.figure("overall")
        if self.goal is None or overall is None:
            return 0.0
        return max(0.0, self.goal - overall)


class Experiment(_Part):
    """A line of the log."""

    what: str
    setting: Any = ""
    fold_overall: float | str | None = None
    verdict: str = ""


class Held(_Part):
    """How long hardware was held, whatever ran on it at once; written by hand."""

    what: str
    hardware: str
    minutes: float = Field(gt=0)


class Records:
    """Records of one profile, by row."""

    def __init__(self, records: Iterable[Record], held: Iterable[Held] = ()):
        self.held = list(held)
        self._rows: dict[tuple[str, str | None], list[Record]] = {}
        for record in sorted(records, key=lambda record: record.seed):
            self._rows.setdefault((record.recipe, record.alone), []).append(record)

    def __iter__(self) -> Iterator[Record]:
        for row in self._rows.values():
            yield from row

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    @property
    def recipes(self) -> list[str]:
        """Recipes that were run whole."""
        return sorted(recipe for recipe, alone in self._rows if alone is None)

    @property
    def alone(self) -> dict[str, list[str]]:
        """Recipes with tasks that were trained by themselves, and those tasks."""
        found: dict[str, list[str]] = {}
        for recipe, alone in sorted(key for key in self._rows if key[1] is not None):
            found.setdefault(recipe, []).append(str(alone))
        return found

    def row(self, recipe: str, alone: str | None = None) -> list[Record]:
        """Return a row's records by seed; empty where it was not run."""
        return self._rows.get((recipe, alone), [])

    def figures(self, recipe: str, name: str, alone: str | None = None) -> dict[int, float]:
        """Return a figure of a row by seed, without the seeds where there is none."""
        found = {r.seed: r.dev.figure(name) for r in self.row(recipe, alone)}
        return {seed: value for seed, value in found.items() if value is not None}

    def most_rows(self, split: str) -> dict[str, int]:
        """Return how many rows of a split each task has, in the run that has the most.

        A run that adds other files to a task's own is not asked how many those are.
        """
        most: dict[str, int] = {}
        for record in self:
            for task, number in record.data.get(split, {}).items():
                if not (split == "train" and record.adds_rows(task)):
                    most[task] = max(most.get(task, 0), number)
        return most

    @property
    def places(self) -> set[str]:
        """Overrides that move no figure: where files are, which seed it was, what is kept when."""
        keys = ("encoder.source", "data.root", "seed", "save_every", "log_every", "listeners")
        each = {override for record in self for override in record.overrides}
        return {override for override in each if override.partition("=")[0].strip() in keys}

    @property
    def common_overrides(self) -> set[str]:
        """Overrides that tell no row from another: every run has them, or they are places."""
        each = [set(record.overrides) for record in self]
        return (set.intersection(*each) if each else set()) | self.places

    def rows_that_vary(self, name: str, *, untrained: bool = False) -> list[str]:
        """Return the rows that tell how much a figure varies from seed to seed.

        They were run whole, and trained what the figure is of, unless asked. A row of one task has
        nothing to sum up: its `overall` is that task's figure again. Runs that fell apart guess
        alike.
        """
        return [
            recipe
            for recipe in self.recipes
            if (untrained or self.row(recipe)[0].trains(name))
            and (name not in SUMMARIES or len(self.row(recipe)[0].dev.tasks) > 1)
            and not all(record.guesses for record in self.row(recipe))
        ]


def read_records(folder: Path, profile: str) -> Records:
    """Read every record of a profile; one that is broken fails with its name."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; --records names the one with the records")
    inside = folder / profile
    others = [path.name for path in folder.iterdir() if path.is_dir()]
    if others and not inside.is_dir():
        raise UsageError(
            f"{folder} has no records of profile {profile!r}{suggest(profile, others)}"
        )
    held = inside / "held.json"
    return Records(
        [_read_record(path, inside) for path in sorted(inside.rglob("seed-*.json"))],
        _read(held, list[Held]) if held.is_file() else (),
    )


def _read_record(path: Path, folder: Path) -> Record:
    record = _read(path, Record)
    alone = ["alone", record.alone] if record.alone is not None else []
    expected = Path(folder, *record.recipe.split("/"), *alone, f"seed-{record.seed}.json")
    if expected != path or record.profile != folder.name:
        what = f"{record.profile} {record.recipe}{f' ({record.alone} alone)' if alone else ''}"
        raise DataError(
            f"says it is seed {record.seed} of {what}, which does not go in a file of this name",
            path=path,
        )
    missing = [name for name in SUMMARIES if name not in record.dev.summary]
    missing += [f"primary.{task}" for task in record.dev.tasks if task not in record.dev.primary]
    if missing:
        raise DataError(f"has no dev figure {missing[0]}; write the record anew", path=path)
    return record


def read_best(folder: Path) -> tuple[list[BestModel], list[Experiment]]:
    """Read the models worth keeping, best first, and the log of what was tried, where there are."""
    log = folder / "log.json"
    models = [_read(path, BestModel) for path in sorted(folder.glob("*.json")) if path != log]
    models.sort(key=lambda model: model.dev.figure("overall") or 0.0, reverse=True)
    return models, _read(log, list[Experiment]) if log.is_file() else []


def _read(path: Path, kind: type[T]) -> T:
    """Read a JSON file as a model, or say in a sentence what is wrong with it."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"is not UTF-8: {error.reason}", path=path) from error
    except json.JSONDecodeError as error:
        raise DataError(f"is not JSON: {error.msg}", path=path, line=error.lineno) from error
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(
            f"is no record: {f'{where}: ' if where else ''}{first['msg'].lower()}", path=path
        ) from error
