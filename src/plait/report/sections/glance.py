"""At a glance: every task's figure, against answering without reading."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from plait.evaluate import summarise
from plait.report.markup import Html, number, section, table

if TYPE_CHECKING:
    from plait.report.sections.material import Material
    from plait.report.subjects import Subject


def write(material: Material) -> Html:
    """Write the table that answers the first question."""
    first = material.subjects[0]
    before = {task: _before(first, task) for task in material.tasks}
    has_before = material.is_single and any(value is not None for value in before.values())
    names = ["trained"] if material.is_single else [s.name for s in material.subjects]
    # What matters most comes first: a narrow screen shows the beginning of a row.
    head = ["task", *names, "baseline", *(["before"] if has_before else [])]
    head += ["dev rows", "figure", "kind"]
    rows = []
    for task in material.tasks:
        owner = next(s for s in material.subjects if task in s.config.tasks)
        scores = owner.scores.get(task)
        figures = [s.figure(task) for s in material.subjects]
        row = [task, *map(number, figures), number(owner.baseline(task))]
        row += [number(before[task])] if has_before else []
        row += ["none" if scores is None else f"{scores.num_examples:,}"]
        rows.append([*row, owner.metric(task).replace("_", " "), owner.config.tasks[task].kind])
    rows += _summaries(material, len(head) - len(names) - 1)
    return section(
        "glance",
        "At a glance",
        "One figure stands for each task, on dev. The baseline answers without reading: the most "
        "frequent class, the labels that most rows have, or the mean score, which correlates with "
        "nothing.",
        table(head, rows, "Every task's figure on dev"),
    )


def _before(subject: Subject, task: str) -> float | None:
    """Return a task's figure before training, where it was scored."""
    if task not in subject.config.tasks:
        return None
    points = subject.history.score("dev", task, subject.metric(task))
    return points[0][1] if points and points[0][0] == 0 else None


def _summaries(material: Material, num_empty: int) -> list[list[str]]:
    rows = []
    for name in ("overall", "mean", "sum"):
        row = [name]
        for subject in material.subjects:
            primary = {
                task: math.nan if figure is None else figure
                for task, figure in ((t, subject.figure(t)) for t in subject.scores)
            }
            kinds = {task: scores.kind for task, scores in subject.scores.items()}
            row.append(number(summarise(primary, kinds)[name]))
        rows.append([*row, *[""] * num_empty])
    return rows
