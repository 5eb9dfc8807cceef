"""Read the records: one JSON file for each run.

records/PROFILE/RECIPE/seed-N.json              a row of a report
records/PROFILE/RECIPE/alone/TASK/seed-N.json   one of its tasks, trained alone
records/PROFILE/held.json                       how long hardware was held for these runs
records/best/NAME.json                          one of the best models
records/best/log.json                           log of experiments
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from plait import PlaitError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

RECORDS = Path(__file__).parent / "records"

SUMMARIES = ("sum", "mean", "overall")

DROP = 0.1
"""A run whose overall score ends this far below its best checkpoint is named on the page."""
ABOVE_BASELINE, ABOVE_ZERO = 0.01, 0.05
"""A score is a chance score if it is not higher than the baseline (or 0, for a correlation) by
more than this."""

T = TypeVar("T")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class TaskScores(_Part):
    """Dev scores of one task; None where a metric is not defined."""

    kind: str
    num_examples: int
    metrics: dict[str, float | None]
    per_class: list[dict[str, Any]] = []
    confusion: list[list[int]] | None = None


class Scores(_Part):
    """Dev scores of a run: primary metrics by task, and their summaries."""

    tasks: dict[str, TaskScores] = {}
    primary: dict[str, float | None] = {}
    summary: dict[str, float | None] = {}

    def get(self, name: str) -> float | None:
        """Return the score of a task, or a summary."""
        return (self.summary if name in SUMMARIES else self.primary).get(name)


class Point(_Part):
    """One evaluation during training."""

    step: int
    overall: float | None = None


class Record(_Part):
    """The record of one run."""

    recipe: str
    profile: str
    alone: str | None = None
    """The task, where a single task of the recipe was trained."""
    seed: int
    overrides: list[str] = []
    settings: dict[str, Any] = {}
    """Of an ensemble, the settings of each member by its name."""
    steps: int | None = None
    best_step: int | None = None
    seconds: float | None = None
    peak_memory_mib: float | None = None
    versions: dict[str, str] = {}
    hardware: str = "unknown"
    precision: str = ""
    encoder: dict[str, Any] = {}
    data: dict[str, dict[str, int]] = {}
    dev: Scores
    baseline: Scores = Scores()
    """Dev scores of always predicting the majority class or the mean score."""
    curves: list[Point] = []
    members: dict[str, Scores] = {}
    """Of an ensemble."""

    @property
    def drop(self) -> tuple[Point, Point] | None:
        """The evaluation of the best checkpoint and the last one, if that is far lower."""
        known = [(point.overall, point) for point in self.curves if point.overall is not None]
        best = [pair for pair in known if pair[1].step == self.best_step]
        if not best or best[0][0] - known[-1][0] < DROP:
            return None
        return best[0][1], known[-1][1]

    @property
    def is_chance(self) -> bool:
        """Whether every task that it trains has a chance score."""
        trained = [task for task in self.dev.tasks if self.trains(task)]
        return bool(trained) and all(
            task in self.baseline.primary
            and _is_chance(self.dev.get(task), self.baseline.primary[task])
            for task in trained
        )

    def trains(self, score: str) -> bool:
        """Say whether all heads that a score depends on were trained.

        Ensembles, and records without settings, count as trained.
        """
        stages, train = self.settings.get("stages", ()), self.settings.get("train", {})
        own = self.settings.get("stage", {})
        tasks = [own.get(name, {}).get("tasks") or train.get("tasks") for name in stages]
        if not all(tasks):  # a stage without a list of tasks trains all
            return True
        trained = {task for some in tasks for task in some}
        return not stages or set(self.dev.tasks if score in SUMMARIES else [score]) <= trained

    def has_added_rows(self, task: str) -> bool:
        """Say whether a task was trained on more than one file."""
        return len(self.settings.get("tasks", {}).get(task, {}).get("train", ())) > 1


def _is_chance(value: float | None, baseline: float | None) -> bool:
    limit = ABOVE_ZERO if baseline is None else baseline + ABOVE_BASELINE
    return value is None or value <= limit


class BestModel(_Part):
    """One of the best models, and how it was chosen."""

    name: str
    about: str
    caution: str = ""
    parameters: int | str | None = None
    how_chosen: str = ""
    goal: float | None = None
    """Overall score that was set as a goal before training."""
    dev: Scores
    interval: dict[str, tuple[float, float]] = {}
    quora_without_implied: float | None = None
    seconds: float | None = None
    hardware: str = "unknown"

    @property
    def missing(self) -> float:
        """How far the overall score is below the goal; 0 if it is not."""
        overall = self.dev.get("overall")
        return 0.0 if self.goal is None or overall is None else max(0.0, self.goal - overall)


class Experiment(_Part):
    """An entry of the log."""

    what: str
    setting: Any = ""
    fold_overall: float | str | None = None
    verdict: str = ""


class Held(_Part):
    """How long hardware was held for some runs; written by hand."""

    what: str
    hardware: str
    minutes: float


class Records:
    """The records of one profile."""

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
        """Recipes with records of joint runs."""
        return sorted(recipe for recipe, alone in self._rows if alone is None)

    @property
    def alone(self) -> list[tuple[str, str]]:
        """Recipes and tasks of theirs that were trained alone."""
        return sorted((recipe, alone) for recipe, alone in self._rows if alone is not None)

    def row(self, recipe: str, alone: str | None = None) -> list[Record]:
        """Return the records of a row by seed."""
        return self._rows.get((recipe, alone), [])

    def scores(self, recipe: str, name: str, alone: str | None = None) -> list[float]:
        """Return one score of a row, a value for each seed."""
        found = (record.dev.get(name) for record in self.row(recipe, alone))
        return [value for value in found if value is not None]

    def most_rows(self, split: str) -> dict[str, int]:
        """Return the largest number of rows of each task, without runs with added files."""
        most: dict[str, int] = {}
        for record in self:
            for task, number in record.data.get(split, {}).items():
                if not (split == "train" and record.has_added_rows(task)):
                    most[task] = max(most.get(task, 0), number)
        return most

    @property
    def common_overrides(self) -> set[str]:
        """Overrides that do not distinguish rows: of every run, or without effect on scores."""
        each = [set(record.overrides) for record in self]
        return (set.intersection(*each) if each else set()) | self.neutral_overrides

    @property
    def neutral_overrides(self) -> set[str]:
        """Overrides without effect on scores: places of files, seeds, logging."""
        keys = ("encoder.source", "data.root", "seed", "save_every", "log_every", "listeners")
        each = {override for record in self for override in record.overrides}
        return {override for override in each if override.partition("=")[0].strip() in keys}

    def rows_that_vary(self, name: str, *, untrained: bool = False) -> list[str]:
        """Return the rows that tell how much a score varies from seed to seed.

        These are joint runs that train what the score depends on (all with `untrained`), except
        summaries of a single task and runs with chance scores.
        """
        return [
            recipe
            for recipe in self.recipes
            if (untrained or self.row(recipe)[0].trains(name))
            and (name not in SUMMARIES or len(self.row(recipe)[0].dev.tasks) > 1)
            and not all(record.is_chance for record in self.row(recipe))
        ]


def read_records(profile: str = "small", folder: Path = RECORDS) -> Records:
    """Read all records of a profile."""
    inside = folder / profile
    records = []
    for path in sorted(inside.rglob("seed-*.json")):
        record = _read(path, Record)
        alone = ["alone", record.alone] if record.alone is not None else []
        if path != Path(inside, *record.recipe.split("/"), *alone, f"seed-{record.seed}.json"):
            raise PlaitError(f"{path}: its recipe and seed do not match its place")
        records.append(record)
    held = inside / "held.json"
    return Records(records, _read(held, list[Held]) if held.is_file() else ())


def read_best(folder: Path = RECORDS) -> tuple[list[BestModel], list[Experiment]]:
    """Read the best models, highest overall score first, and the log of experiments."""
    log = folder / "best" / "log.json"
    paths = sorted(path for path in (folder / "best").glob("*.json") if path != log)
    models = [_read(path, BestModel) for path in paths]
    models.sort(key=lambda model: model.dev.get("overall") or 0.0, reverse=True)
    return models, _read(log, list[Experiment]) if log.is_file() else []


def _read(path: Path, kind: type[T]) -> T:
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except ValidationError as error:
        raise PlaitError(f"{path} is not a valid record: {error}") from error
