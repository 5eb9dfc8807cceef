"""At a glance: every task's figure beside that of its best simple baseline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from plait.analysis.report.markup import Html, number, section, table, tag
from plait.inference.baselines import explain_shortfall
from plait.tasks import TASK_KINDS
from plait.tasks.metrics import summarise

if TYPE_CHECKING:
    from plait.analysis.report.sections.material import Material
    from plait.analysis.report.subjects import Subject


def write(material: Material) -> Html:
    """Write the table that answers the first question."""
    first = material.subjects[0]
    before = {task: _before(first, task) for task in material.tasks}
    has_before = material.is_single and any(value is not None for value in before.values())
    names = ["trained"] if material.is_single else [s.name for s in material.subjects]
    # What matters most comes first: a narrow screen shows the beginning of a row.
    head = ["task", *names, "baseline", *(["before"] if has_before else [])]
    head += ["dev rows", "figure", "kind", "best baseline"]
    rows = []
    for task in material.tasks:
        owner = next(s for s in material.subjects if task in s.config.tasks)
        scores = owner.scores.get(task)
        figures = [s.figure(task) for s in material.subjects]
        best, beaten = owner.best_baseline(task) or ("none", None)
        row = [task, *map(number, figures), number(beaten)]
        row += [number(before[task])] if has_before else []
        row += ["none" if scores is None else f"{scores.num_examples:,}"]
        kind = owner.config.tasks[task].kind
        rows.append([*row, owner.metric(task).replace("_", " "), kind.name, best])
    rows += _summaries(material, len(head) - len(names) - 1)
    return section(
        "glance",
        "At a glance",
        "Each task's metric on the dev set. The baseline is the best of several models that train "
        "no encoder: the majority class (or the mean score) and, where they were measured, linear "
        "models of frozen vectors and of TF-IDF.",
        table(head, rows, "Every task's figure on dev"),
        *(tag("p", sentence) for sentence in _shortfalls(material)),
    )


def _shortfalls(material: Material) -> list[str]:
    """Return a sentence for each task of each run whose model does not beat its baselines."""
    found = []
    for subject in material.subjects:
        tasks = subject.config.tasks
        joint = sum(bool(task.train) for task in tasks.values()) > 1
        for name, scores in subject.scores.items():
            sentence = explain_shortfall(
                name,
                tasks[name],
                subject.figure(name),
                subject.best_baseline(name),
                scores.num_examples,
                joint=joint,
                show=number,
            )
            if sentence is not None:
                found.append(material.title(f"{sentence}.", subject))
    return found


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
            kinds = {task: TASK_KINDS[scores.kind] for task, scores in subject.scores.items()}
            row.append(number(summarise(primary, kinds)[name]))
        rows.append([*row, *[""] * num_empty])
    return rows
