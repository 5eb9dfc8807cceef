"""Sections of what stands beside the tables: single figures, single tasks, other rows."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from plait.errors import counted
from plait.results.findings import compare
from plait.results.markdown import between, figure, over_seeds, paragraph, signed, table
from plait.results.sections.findings import show_seeds
from plait.results.tables import read_details

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plait.results.gathering import Results
    from plait.results.records import Records
    from plait.results.significance import Difference


def show_details(records: Records) -> list[str]:
    """Return what the reports print of single tasks, and ours beside it."""
    lines = ["## Figures besides", ""]
    lines += paragraph("What the reports print of single tasks of their best runs.")
    rows = []
    for detail in read_details():
        read = [values for record in records.row(detail.recipe) if (values := detail.read(record))]
        ours = [fmean(column) for column in zip(*read, strict=True)]
        digits = 0 if detail.mistaken else max(len(f"{v:g}") - 2 for v in detail.published)
        theirs = [figure(value, digits) for value in detail.published]
        what = f"{detail.what}{f' ({detail.note})' if detail.note else ''}"
        here = " ".join(figure(value, digits) for value in ours) or "not run yet"
        cells = [detail.where, f"`{detail.recipe}`", f"`{detail.task}`", what]
        rows.append([*cells, " ".join(theirs), here])
    return lines + table(["report", "run", "task", "figures", "published", "here"], rows, 4)


def show_alone(records: Records) -> list[str]:
    """Return the baselines of single tasks; nothing where none was run."""
    if not records.alone:
        return []
    lines = ["## Each task alone", ""]
    lines += paragraph(
        "What sharing gained: a row's tasks trained together, and each trained by itself with its "
        "share of the row's budget. The gain has the interval of the findings' test. A row keeps "
        "the checkpoint that is best for all tasks together, a task alone the one that is best for "
        "it: so a gain is rather told too small."
    )
    rows = []
    for recipe, task, found in _compare_alone(records):
        together = list(records.figures(recipe, task).values())
        alone = list(records.figures(recipe, task, task).values())
        told = ["", "", found] if isinstance(found, str) else _gain(found)
        cells = [over_seeds(v) if v else "not run yet" for v in (together, alone)]
        rows.append([f"`{recipe}`", f"`{task}`", *cells, *told])
    header = ["row", "task", "together", "alone", "gained", "95% interval", "seeds"]
    return lines + table(header, rows, 2)


def sum_up_alone(records: Records) -> str | None:
    """Say in a sentence what sharing gained and cost; nothing where no task was run alone."""
    found = [(r, task, d) for r, task, d in _compare_alone(records) if not isinstance(d, str)]
    if not found:
        return None
    gained = [one for one in found if one[2].interval[0] > 0]
    lost = [one for one in found if one[2].interval[1] < 0]
    return (
        f"**Sharing**: of {counted(len(found), 'task')} trained alone beside the row that has it "
        f"among others, {_name_tasks(gained)} gained by it and {_name_tasks(lost)} lost, as far as "
        "these seeds can tell ([more](#each-task-alone))."
    )


def _name_tasks(found: Sequence[tuple[str, str, Difference]]) -> str:
    told = [f"`{task}` of `{recipe}` {signed(gain.value)}" for recipe, task, gain in found]
    return f"{len(told)} ({', '.join(told)})" if told else "none"


def _compare_alone(records: Records) -> Iterator[tuple[str, str, Difference | str]]:
    """Give what training together gained over training alone, row by row and task by task."""
    for recipe, tasks in records.alone.items():
        order = list(records.row(recipe)[0].dev.tasks) if records.row(recipe) else tasks
        for task in sorted(tasks, key=order.index):
            yield recipe, task, compare([(recipe, None)], [(recipe, task)], task, records)


def _gain(found: Difference) -> list[str]:
    return [signed(found.value), between(found.interval, signs=True), show_seeds(found)]


def show_others(results: Results) -> list[str]:
    """Return the rows that were run but are of no report."""
    known = {row.recipe for printed in results.tables for row in printed.rows}
    records = results.records
    recipes = [recipe for recipe in records.recipes if recipe not in known]
    if not recipes:
        return []
    tasks = dict.fromkeys(task for r in recipes for task in records.row(r)[0].dev.tasks)
    columns = [*tasks, "mean", "overall"]
    rows = [
        [
            f"`{r}`",
            *(over_seeds(list(records.figures(r, c).values())) for c in columns),
            str(len(records.row(r))),
        ]
        for r in recipes
    ]
    header = ["row", *(f"`{name}`" for name in columns), "seeds"]
    return ["## Not in the reports", "", *table(header, rows)]
