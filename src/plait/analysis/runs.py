"""Read runs and ensembles for analysis: settings, log, dev scores and dev answers."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from plait.errors import DataError, RunError, UsageError
from plait.inference.baselines import best_in
from plait.inference.ensemble import is_ensemble, read_outlines
from plait.inference.fitting.answers import TaskAnswers, answer_dev
from plait.inference.folders import RunFolder
from plait.tasks import TaskScores
from plait.tasks.metrics import format_number, primary_metric

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from plait.config import RunConfig
    from plait.inference.predictor import Progress

Points = list[tuple[int, float]]
"""Steps and values; NaN where a value is undefined."""


@dataclass(frozen=True, slots=True)
class History:
    """Everything that a run logged, in order."""

    losses: dict[str, Points] = field(default_factory=dict)
    """By task, or by the name of a stage's own loss."""
    scores: dict[str, dict[str, dict[str, Points]]] = field(default_factory=dict)
    """By split, task and metric."""
    conflicts: dict[tuple[str, str], dict[str, Points]] = field(default_factory=dict)
    """By pair of tasks: `cosine` of their gradients, and `share` of conflicting steps."""

    def score(self, split: str, task: str, metric: str) -> Points:
        """Return the values of one metric; empty if it was not logged."""
        return self.scores.get(split, {}).get(task, {}).get(metric, [])


@dataclass(frozen=True, slots=True, eq=False)
class AnalysedRun:
    """A run or an ensemble with its dev answers."""

    name: str
    folder: Path
    config: RunConfig
    """Of an ensemble, its first member's."""
    members: tuple[Path, ...]
    """Folders of an ensemble's members; empty for a run."""
    info: dict[str, Any]
    """run.json; empty for an ensemble."""
    result: dict[str, Any]
    """scores.json; empty if it does not exist."""
    history: History
    answers: dict[str, TaskAnswers]
    """To the dev set, by task."""
    scores: dict[str, TaskScores]
    """On the dev set: of the answers, or from scores.json if the dev files are missing."""
    unanswered: str = ""
    """The reason why there are no answers."""

    def metric(self, task: str) -> str:
        """Return the name of a task's primary metric."""
        settings = self.config.tasks[task]
        return primary_metric(settings.kind, settings.metric)

    def metric_name(self, task: str) -> str:
        """Return it in words."""
        return self.metric(task).replace("_", " ")

    def describe(self, task: str) -> str:
        """Return the name and value of a task's primary metric."""
        return f"{self.metric_name(task)} {format_number(self.value(task))}"

    def value(self, task: str) -> float | None:
        """Return a task's primary metric; None if it was not scored."""
        scores = self.scores.get(task)
        return None if scores is None else scores.metrics[self.metric(task)]

    def best_baseline(self, task: str) -> tuple[str, float] | None:
        """Return the name and value of a task's best baseline; None if it has none."""
        return best_in(self.result, task, self.config.tasks[task].kind)


def read_runs(
    runs: Sequence[Path],
    *,
    data: str | None = None,
    device: str = "auto",
    note: Callable[[str], None] = lambda _: None,
    reading: Progress | None = None,
    answering: Progress | None = None,
) -> list[AnalysedRun]:
    """Read runs with their dev answers, in the order given."""
    places = [run.resolve() for run in runs]
    for number, (run, place) in enumerate(zip(runs, places, strict=True)):
        if place in places[:number]:
            raise UsageError(f"{run} is named twice")
    found = []
    for name, run in zip(_unique_names(places), runs, strict=True):
        facts = _read_facts(run)
        try:
            _, answers = answer_dev(
                run, data=data, device=device, reading=reading, answering=answering
            )
            reason = "" if answers else "it has no dev files"
        except DataError as error:
            if data is not None:  # the user named this folder
                raise
            answers, reason = {}, f"its dev files cannot be read; name their folder ({error})"
        if reason:
            note(f"{run}: {reason}; scores are taken from scores.json")
        scores = {task: each.score() for task, each in answers.items()}
        scores = scores or _saved_scores(facts["result"])
        found.append(
            AnalysedRun(name, run, **facts, answers=answers, scores=scores, unanswered=reason)
        )
    return found


def read_history(path: Path) -> History:
    """Read metrics.jsonl; empty if it does not exist. An incomplete last line is ignored."""
    history = History()
    lines = path.read_bytes().splitlines() if path.is_file() else []
    for number, line in enumerate(lines, 1):
        try:
            _add_event(history, json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number < len(lines):
                raise RunError(
                    f"{path}, line {number}: this is not a log that plait wrote"
                ) from error
    return history


def _add_event(history: History, event: dict[str, Any]) -> None:
    step = int(event["step"])

    def add(curves: dict[str, Points], values: dict[str, float | None]) -> None:
        for name, value in values.items():
            curves.setdefault(name, []).append((step, math.nan if value is None else float(value)))

    if event["event"] == "losses":
        add(history.losses, event["losses"])
        for pair, values in event.get("conflicts", {}).items():
            first, second = pair.split(",")
            add(history.conflicts.setdefault((first, second), {}), values)
    elif event["event"] == "scores":
        split = history.scores.setdefault(event["split"], {})
        for task, metrics in event["metrics"].items():
            add(split.setdefault(task, {}), metrics)


def _read_facts(run: Path) -> dict[str, Any]:
    """Read the files of a run's folder, before any slow work begins."""
    if not run.is_dir():
        raise RunError(f"there is no run at {run}")
    members = tuple(read_outlines(run)[0]) if is_ensemble(run) else ()
    folder = RunFolder(run)
    return {
        "config": RunFolder(members[0] if members else run).read_config(),
        "members": members,
        "info": folder.read_json(folder.info) if folder.info.is_file() else {},
        "result": folder.read_json(folder.scores) if folder.scores.is_file() else {},
        "history": read_history(folder.log),
    }


def _saved_scores(result: dict[str, Any]) -> dict[str, TaskScores]:
    """Return the dev scores of scores.json; null becomes NaN."""
    found = {}
    for name, values in result.get("dev", {}).get("tasks", {}).items():
        metrics = {k: math.nan if v is None else v for k, v in values["metrics"].items()}
        found[name] = TaskScores(**values | {"metrics": metrics})
    return found


def _unique_names(places: Sequence[Path]) -> list[str]:
    """Name runs by their folders, with as many parent folders as make the names unique."""
    parts = [place.parts for place in places]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return names
