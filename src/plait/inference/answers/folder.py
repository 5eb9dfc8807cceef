"""Files of any number and size become a folder of answers, part by part.

Who answers the parts is left to whoever asks: this process, or a cluster.
"""

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
    """Files that are not done, by their places, with the first rows of parts that are."""

    AnswerParts = Callable[[Plan, Todo], Generator[dict[str, Any]]]
    """Answers what is to do, and gives a note of each part that is done; closed when left early."""


@dataclass(frozen=True, slots=True)
class FolderAnswers:
    """A finished folder of answers."""

    path: Path
    num_rows: int
    num_parts: int
    num_review: dict[str, int]
    """For each task that may abstain, how many of its answers are for review."""
    num_empty: int = 0
    """Rows that lack a text, and so an answer."""


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
    """Answer every row of a plan's files into its folder, or what is still missing there.

    `answer` answers the parts: this process unless given. `form` is what else answers follow
    from, such as a precision; `command` is how the user would go on; `progress` counts rows.
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
                f"stopped; {manifest.num_rows:,} rows are kept in {plan.out}. Go on with: {command}"
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
    """Return what the answers follow from: files by size and time, for reading all takes long."""
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
