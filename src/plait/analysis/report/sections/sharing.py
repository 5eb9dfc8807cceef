"""What sharing gained: each task in the joint run against a run of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plait.analysis.report.markup import Html, details, grid, number, section, signed, table
from plait.analysis.report.sections.material import Material
from plait.analysis.report.sections.versus import draw_gaps

if TYPE_CHECKING:
    from plait.analysis.report.comparison import Difference
    from plait.analysis.report.subjects import Subject

READ = (
    "Right of the line, the task is better off with the others. The bar holds 95% of the "
    "differences found when dev rows are drawn again; a filled mark's bar leaves 0 out."
)


def write(material: Material) -> Html | None:
    """Write a picture per joint run, where runs of single tasks were given."""
    if not material.alone:
        return None
    gaps = {
        subject.name: {
            task: material.compare(task, subject.answers[task], single.answers[task])
            for task, single in material.alone.items()
            if task in subject.answers and task in single.answers
        }
        for subject in material.subjects
    }
    titles = {name: (f"{name} against each task alone", "Gain by task") for name in gaps}
    panels = draw_gaps(material, "sharing", gaps, titles, "joint minus alone", READ)
    if not panels:
        return section(
            "sharing", "What sharing gained", "No task was answered both together and alone."
        )
    rows = [
        _row(task, subject, material.alone[task], gap)
        for subject in material.subjects
        for task, gap in gaps[subject.name].items()
    ]
    head = ["task", "run", "figure", "alone", "joint", "gain", "from", "to"]
    return section(
        "sharing",
        "What sharing gained",
        "A task trained with others against the same task trained alone, with the batches it has "
        "in the joint run.",
        grid(panels),
        details("Table: gains", table(head, rows, "Joint against alone", 3)),
    )


def _row(task: str, subject: Subject, single: Subject, gap: Difference) -> list[str]:
    return [
        task,
        subject.name,
        subject.metric(task).replace("_", " "),
        number(single.figure(task)),
        number(subject.figure(task)),
        *map(signed, (gap.value, gap.low, gap.high)),
    ]
