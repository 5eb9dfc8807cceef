"""The runs against the first: how much more each task has, and whether that could be chance."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

from plait.analysis.report import plots
from plait.analysis.report.comparison import Difference
from plait.analysis.report.markup import Html, details, grid, number, panel, section, signed, table
from plait.analysis.report.sections.material import Material
from plait.inference.intervals import DRAWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plait.analysis.report.subjects import Subject

READ = (
    "Right of the line is better. The bar holds 95% of the differences found when dev rows are "
    "drawn again; a filled mark's bar leaves 0 out."
)


def write(material: Material) -> Html | None:
    """Write the comparison, where there are several runs."""
    if material.is_single:
        return None
    first, *others = material.subjects
    gaps = {
        subject.name: {
            task: _subtract(material, task, subject, first)
            for task in subject.scores
            if task in first.scores
        }
        for subject in others
    }
    titles = {
        name: (f"{name} against {first.name}", f"Differences of {name} from {first.name}")
        for name in gaps
    }
    panels = draw_gaps(material, "versus", gaps, titles, "difference", READ, 1)
    rows = [
        _row(task, subject, first, gap)
        for subject in others
        for task, gap in gaps[subject.name].items()
    ]
    head = ["task", "run", "figure", first.name, "the run", "difference", "from", "to"]
    return section(
        "versus",
        f"Against {first.name}",
        f"What the other runs have more than {first.name}, on the same dev rows. The interval is a "
        f"paired bootstrap of {DRAWS:,} draws: it says what other rows might have shown, not what "
        "another seed would.",
        grid(panels),
        details("Table: differences", table(head, rows, f"Differences from {first.name}", 3)),
    )


def draw_gaps(
    material: Material,
    key: str,
    gaps: Mapping[str, Mapping[str, Difference]],
    titles: Mapping[str, tuple[str, str]],
    axis: str,
    read: str,
    place: int = 0,
) -> list[Html]:
    """Draw each run's differences by task, all on one scale; runs without any are left out.

    `titles` are each picture's, and how its description begins; `place` is the first run's among
    the report's.
    """
    drawn = {
        name: [plots.Row(task, gap, at) for task, gap in mine.items()]
        for at, (name, mine) in enumerate(gaps.items(), place)
        if mine
    }
    furthest = plots.reach([row for rows in drawn.values() for row in rows]) if drawn else 0.0
    return [
        panel(
            material.easel.draw(
                f"{key}-{name}",
                titles[name][0],
                f"{titles[name][1]}: {tell(gaps[name])}.",
                partial(plots.differences, rows=rows, axis=axis, furthest=furthest),
                plots.rows_size(len(rows)),
                name,
            ),
            read,
            "h3",
        )
        for name, rows in drawn.items()
    ]


def tell(gaps: Mapping[str, Difference]) -> str:
    """Put differences into words."""
    return ", ".join(f"{task} {signed(gap.value)}" for task, gap in gaps.items())


def _subtract(material: Material, task: str, mine: Subject, theirs: Subject) -> Difference:
    if task in mine.answers and task in theirs.answers:
        return material.compare(task, mine.answers[task], theirs.answers[task])
    metric = mine.metric(task)
    return Difference(
        mine.scores[task].metrics[metric] - theirs.scores[task].metrics.get(metric, math.nan)
    )


def _row(task: str, subject: Subject, first: Subject, gap: Difference) -> list[str]:
    metric = subject.metric(task)
    return [
        task,
        subject.name,
        metric.replace("_", " "),
        number(first.scores[task].metrics.get(metric)),
        number(subject.scores[task].metrics[metric]),
        signed(gap.value),
        signed(gap.low),
        signed(gap.high),
    ]
