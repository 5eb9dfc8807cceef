"""The section on costs: minutes by hardware, and what a run of each row takes."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean
from typing import TYPE_CHECKING

from plait.errors import counted
from plait.results.markdown import paragraph, table

if TYPE_CHECKING:
    from collections.abc import Callable

    from plait.results.records import Record, Records


def show_costs(records: Records) -> list[str]:
    """Return the section's lines; nothing where nothing was run."""
    if not len(records):
        return []
    timed = [record for record in records if record.seconds is not None]
    lines = ["## Costs", ""]
    without = len(records) - len(timed)
    besides = f" {counted(without, 'run')} did not say how long." if without else ""
    lines += paragraph(
        "Training and scoring together, as the records have it, by the clock: where several runs "
        f"share a GPU, each counts its own time.{besides}"
    )
    by_group: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in timed:
        by_group[_group(record), record.hardware].append(record)
    rows = [[name, hardware, *_sum(runs)] for (name, hardware), runs in sorted(by_group.items())]
    by_hardware: dict[str, list[Record]] = defaultdict(list)
    for record in timed:
        by_hardware[record.hardware].append(record)
    rows += [["**all**", name, *_sum(runs)] for name, runs in sorted(by_hardware.items())]
    lines += table(["rows", "hardware", "runs", "minutes", "hours"], rows, 2)
    if records.held:
        lines += paragraph(
            "About how long the hardware was held, starts and waits included; where runs for "
            "several of these shared it, by their parts:"
        )
        held = [[part.what, part.hardware, f"{part.minutes:,.0f}"] for part in records.held]
        lines += table(["for", "hardware", "minutes"], held, 2)
    rows = []
    for recipe in records.recipes:
        row = records.row(recipe)
        rows.append(
            [
                f"`{recipe}`",
                str(len(row)),
                mean_over(row, lambda record: record.steps),
                mean_over(row, lambda record: record.best_step),
                mean_over(row, lambda record: record.seconds and record.seconds / 60, 1),
                mean_over(row, lambda record: record.peak_memory_mib),
            ]
        )
    header = ["row", "seeds", "updates", "best after", "minutes a run", "peak MiB"]
    return [*lines, "### Cost of a run", "", *table(header, rows)]


def _group(record: Record) -> str:
    folder = record.recipe.partition("/")[0]
    return f"`{folder}/...`" + (", tasks alone" if record.alone else "")


def _sum(runs: list[Record]) -> list[str]:
    seconds = sum(record.seconds or 0.0 for record in runs)
    return [f"{len(runs):,}", f"{seconds / 60:,.0f}", f"{seconds / 3600:,.1f}"]


def mean_over(row: list[Record], read: Callable[[Record], float | None], digits: int = 0) -> str:
    """Write the mean of what records of a row say; nothing where none does."""
    values = [value for record in row if (value := read(record)) is not None]
    return f"{fmean(values):,.{digits}f}" if values else ""
