"""Predict many files into a folder, part by part, in this process or on a cluster."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from plait import __version__
from plait.errors import Interrupted
from plait.inference.answers.manifest import Manifest
from plait.inference.answers.parts import answer_part, read_parts
from plait.inference.calibration import plain_scalings

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from pathlib import Path

    from plait.inference.answers.parts import Plan
    from plait.inference.answers.stream import Progress
    from plait.inference.predictor import Answerer

    Todo = Mapping[int, frozenset[int]]
    """Unfinished files by number, with the first rows of their finished parts."""

    AnswerParts = Callable[[Plan, Todo], Generator[dict[str, Any]]]
    """Predicts the missing parts and yields a manifest entry for each."""


@dataclass(frozen=True, slots=True)
class FolderAnswers:
    """A finished folder of predictions."""

    path: Path
    num_rows: int
    num_parts: int
    num_review: dict[str, int]
    """Number of rows marked for review, for each task with a threshold."""
    num_empty: int = 0
    """Rows without a text, which have no prediction."""


def answer_folder(
    model: Answerer,
    plan: Plan,
    *,
    answer: AnswerParts | None = None,
    form: Mapping[str, Any] | None = None,
    resume: bool = False,
    command: str = "the same call and resume=True",
    progress: Progress | None = None,
) -> FolderAnswers:
    """Predict every row of a plan's files into its folder, or only the missing parts.

    `answer` predicts the parts; by default this process does. `form` has other settings that change
    predictions, such as the precision. `command` is the command that resumes; `progress` counts
    rows.
    """
    manifest = Manifest(plan.out, _describe(model, plan, form or {}))
    with manifest.opened(resume=resume):
        files = range(len(plan.files))
        todo = {i: manifest.done_starts(i) for i in files if not manifest.is_done(i)}
        if manifest.is_finished:
            todo = {}
        try:
            with closing((answer or _answer_here(model))(plan, todo)) as done:
                for note in done if todo else ():
                    manifest.add(note)
                    if progress is not None:
                        progress("answering", manifest.num_rows, 0)
        except KeyboardInterrupt:
            raise Interrupted(
                f"stopped; {manifest.num_rows:,} rows are kept in {plan.out}. Continue with: "
                f"{command}"
            ) from None
        manifest.finish()
    tasks = [column.task for column in plan.columns if column.threshold is not None]
    notes = manifest.parts.values()
    review = {task: sum(note["review"][task] for note in notes) for task in tasks}
    num_empty = sum(note.get("empty", 0) for note in notes)
    return FolderAnswers(plan.out, manifest.num_rows, len(notes), review, num_empty)


def _answer_here(model: Answerer) -> AnswerParts:
    def answer(plan: Plan, todo: Todo) -> Generator[dict[str, Any]]:
        for file, done in todo.items():
            for part, records in read_parts(plan, file, done):
                yield answer_part(model, plan, part, records)

    return answer


def _describe(model: Answerer, plan: Plan, form: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that predictions depend on; input files by name, size and time."""
    found = [(name, p.stat()) for name, p in zip(plan.names, plan.files, strict=True)]
    return {
        "input": [[name, stat.st_size, stat.st_mtime_ns] for name, stat in found],
        "separator": plan.separator,
        "quoting": plan.quoting,
        "model": model.identify(),
        "calibration": plain_scalings(model.scalings),
        "tasks": {c.task: {"text": c.text, "threshold": c.threshold} for c in plan.columns},
        "probabilities": plan.columns[0].probabilities,
        "format": plan.form,
        **form,
        "part_rows": plan.part_rows,
        "plait": __version__,
    }
