"""The best model's section, and the log of what was tried."""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING

from plait.results.markdown import between, figure, items, paragraph, table

if TYPE_CHECKING:
    from plait.results.gathering import Results
    from plait.results.records import BestModel


def show_best(results: Results) -> list[str]:
    """Return the sections' lines; nothing where there is neither."""
    if not (results.best or results.log):
        return []
    lines = ["## Best models", ""] if results.best else []
    if results.best:
        lines += paragraph(
            "The interval is over draws of dev rows, not over seeds. The highest row, here and in "
            "print, is that of each figure by itself: the highest of many on dev is flattered."
        )
    for model in results.best:
        lines += paragraph(f"**{model.name}**: {model.about}")
        lines += _best_table(model, results)
        told = [f"**{model.caution}**"] if model.caution else []
        if model.goal is not None:
            digits = 3 if model.lacks >= 0.001 else 4
            missed = f"missed by {figure(model.lacks, digits)}" if model.lacks else "met"
            told.append(f"Goal set beforehand, `overall`: {figure(model.goal)}, {missed}")
        if model.how_chosen:
            told.append(f"How it was chosen: {model.how_chosen}")
        if model.parameters is not None:
            size = model.parameters
            told.append(f"Parameters: {size if isinstance(size, str) else f'{size:,}'}")
        if model.quora_without_implied is not None:
            told.append(
                "`quora` without pairs that the training pairs imply: "
                f"{figure(model.quora_without_implied)}"
            )
        if model.seconds is not None:
            told.append(f"Training: {model.seconds / 60:,.1f} minutes on {model.hardware}")
        lines += items(told)
    if results.log:
        lines += ["## Log of experiments", ""]
        lines += paragraph("What was tried on the way, also what failed.")
        rows = [
            [
                entry.what,
                f"`{entry.setting}`" if entry.setting else "",
                entry.verdict,
                entry.fold_overall
                if isinstance(entry.fold_overall, str)
                else ""
                if entry.fold_overall is None
                else figure(entry.fold_overall, 4),
            ]
            for entry in results.log
        ]
        lines += table(["what", "setting", "verdict", "overall on folds"], rows, 3)
    return lines


def _best_table(model: BestModel, results: Results) -> list[str]:
    """Show a model beside the highest that was printed and the highest of our rows."""
    rows = []
    printed = [row for t in results.tables for row in t.rows if len(row.published.figures) > 1]
    for name in (*model.dev.tasks, "mean", "overall"):
        theirs = [v for row in printed if (v := row.printed(name) or row.figure(name)) is not None]
        ours = [
            fmean(values)
            for recipe in results.records.recipes
            if (values := results.records.figures(recipe, name).values())
            and len(results.records.row(recipe)[0].dev.tasks) > 1
        ]
        low_high = model.interval.get(name)
        rows.append(
            [
                f"`{name}`",
                f"**{figure(model.dev.figure(name))}**",
                between(low_high) if low_high else "",
                figure(max(ours, default=None)),
                figure(max(theirs, default=None)),
            ]
        )
    header = ["figure", "here", "95% interval", "highest row here", "highest published"]
    return table(header, rows)
