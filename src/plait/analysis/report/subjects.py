"""Folders become what the report is about: runs with their settings, history and answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait.analysis.report.history import History, read_history
from plait.errors import DataError, RunError, UsageError
from plait.inference.baselines import best_in
from plait.inference.ensemble import is_ensemble, read_outlines
from plait.inference.fitting.answers import TaskAnswers, answer_dev
from plait.inference.folders import RunFolder
from plait.tasks import TaskScores
from plait.tasks.metrics import primary_metric

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from plait.config import RunConfig
    from plait.inference.predictor import Progress

    Note = Callable[[str], None]


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A run, or an ensemble, as a reader sees it."""

    name: str
    folder: Path
    config: RunConfig
    """Of an ensemble, the first member's."""
    members: tuple[Path, ...]
    """Of an ensemble; a run has none."""
    info: dict[str, Any]
    """run.json; empty for an ensemble."""
    result: dict[str, Any]
    """scores.json; empty where there is none."""
    history: History
    answers: dict[str, TaskAnswers]
    """To dev, by task."""
    scores: dict[str, TaskScores]
    """On dev: of the answers, or as scores.json has them where the files are not at hand."""
    why_silent: str = ""
    """Why there are no answers, in a sentence."""

    def metric(self, task: str) -> str:
        """Return the name of the figure that stands for a task."""
        settings = self.config.tasks[task]
        return primary_metric(settings.kind, settings.metric)

    def figure(self, task: str) -> float | None:
        """Return the figure that stands for a task; None where it was not scored."""
        scores = self.scores.get(task)
        return None if scores is None else scores.metrics[self.metric(task)]

    def best_baseline(self, task: str) -> tuple[str, float] | None:
        """Return the name and figure of a task's best simple baseline; None if it has none."""
        return best_in(self.result, task, self.config.tasks[task].kind)


def read_subjects(
    runs: Sequence[Path],
    *,
    data: str | None = None,
    device: str = "auto",
    note: Note = lambda _: None,
    reading: Progress | None = None,
    answering: Progress | None = None,
) -> list[Subject]:
    """Read runs and their answers to dev, in the order given."""
    places = [run.resolve() for run in runs]
    for number, (run, place) in enumerate(zip(runs, places, strict=True)):
        if place in places[:number]:
            raise UsageError(f"{run} is named twice")
    subjects = []
    for name, run in zip(_names(runs), runs, strict=True):
        outline = _outline(name, run)
        answers, why = _answer(run, data, device, reading, answering)
        if why:
            note(f"{run}: {why}; what needs answers is left out, or from scores.json")
        scores = {task: found.score() for task, found in answers.items()} or _kept(outline)
        subjects.append(Subject(**outline, answers=answers, scores=scores, why_silent=why))
    return subjects


def _outline(name: str, run: Path) -> dict[str, Any]:
    """Read what a folder says of itself, before anything slow begins."""
    if not run.is_dir():
        raise RunError(f"there is no run at {run}")
    members = tuple(read_outlines(run)[0]) if is_ensemble(run) else ()
    folder = RunFolder(run)
    first = RunFolder(members[0]) if members else folder
    return {
        "name": name,
        "folder": run,
        "config": first.read_config(),
        "members": members,
        "info": folder.read_json(folder.info) if folder.info.is_file() else {},
        "result": folder.read_json(folder.scores) if folder.scores.is_file() else {},
        "history": read_history(folder.log),
    }


def _answer(
    run: Path, data: str | None, device: str, reading: Progress | None, answering: Progress | None
) -> tuple[dict[str, TaskAnswers], str]:
    """Return answers to dev, or none and why."""
    try:
        _, answers = answer_dev(run, data=data, device=device, reading=reading, answering=answering)
    except DataError as error:
        if data is not None:  # the user meant those files
            raise
        return {}, f"its dev files cannot be read, unless --data says where ({error})"
    return answers, "" if answers else "it has no dev files"


def _kept(outline: dict[str, Any]) -> dict[str, TaskScores]:
    """Return the scores that scores.json keeps, None as nan."""
    tasks = outline["result"].get("dev", {}).get("tasks", {})
    found = {}
    for name, values in tasks.items():
        metrics = {k: float("nan") if v is None else v for k, v in values["metrics"].items()}
        found[name] = TaskScores(**values | {"metrics": metrics})
    return found


def _names(runs: Sequence[Path]) -> list[str]:
    """Name runs by their folders, with as many parents as tell them apart."""
    parts = [run.resolve().parts for run in runs]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return names
