"""Where tasks disagree: how their gradients on the encoder point, two tasks at a time."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from plait.analysis.report import plots
from plait.analysis.report.markup import Html, details, grid, number, panel, percent, section, table
from plait.analysis.report.sections.material import Material, run_legend
from plait.errors import counted

if TYPE_CHECKING:
    from plait.analysis.report.history import Points

MOST_PAIRS = 12
"""Pairs of tasks that get a picture, those that conflict most; the table has all."""

Pair = tuple[str, str]


def write(material: Material) -> Html | None:
    """Write a picture per two tasks whose gradients were seen apart."""
    pairs = dict.fromkeys(pair for s in material.subjects for pair in s.history.conflicts)
    if not pairs:
        return None
    seen = [s.name for s in material.subjects if s.history.conflicts]
    ordered = sorted(pairs, key=lambda pair: -_share(material, pair))
    panels = [panel(_draw(material, pair), level="h3") for pair in ordered[:MOST_PAIRS]]
    rows = [
        [" and ".join(pair), subject.name, *_means(subject.history.conflicts[pair])]
        for pair in ordered
        for subject in material.subjects
        if pair in subject.history.conflicts
    ]
    left = len(ordered) - MOST_PAIRS
    more = f" {counted(left, 'pair')} that conflict less are in the table." if left > 0 else ""
    head = ["tasks", "run", "mean cosine", "conflicting updates"]
    return section(
        "disagreement",
        "Where tasks disagree",
        "Above, the cosine of two tasks' gradients on the shared encoder: below 0, what helps one "
        "hurts the other. Below, the share of updates in which that was so. The pairs that "
        f"conflict most come first.{more}",
        *([] if material.is_single else [run_legend(material, only=seen)]),
        grid(panels),
        details("Table: conflicts", table(head, rows, "Means over the run", 2)),
    )


def _draw(material: Material, pair: Pair) -> plots.Picture:
    found = [
        (place, subject.name, subject.history.conflicts[pair])
        for place, subject in enumerate(material.subjects)
        if pair in subject.history.conflicts
    ]
    cosines = [plots.Series(name, curves["cosine"], place) for place, name, curves in found]
    shares = [plots.Series(name, curves["share"], place) for place, name, curves in found]
    told = "; ".join(
        f"{name} mean cosine {_means(curves)[0]}, conflicting in {_means(curves)[1]} of updates"
        for _, name, curves in found
    )
    return material.easel.draw(
        f"conflict-{pair[0]}-{pair[1]}",
        f"{pair[0]} and {pair[1]}",
        f"Gradients of {pair[0]} and {pair[1]}: {told}.",
        partial(plots.conflicts, cosines=cosines, shares=shares),
        (plots.WIDTH, 2.8),
    )


def _share(material: Material, pair: Pair) -> float:
    shares = [
        _mean(subject.history.conflicts[pair]["share"])
        for subject in material.subjects
        if pair in subject.history.conflicts
    ]
    known = [share for share in shares if np.isfinite(share)]
    return max(known, default=0.0)


def _means(curves: dict[str, Points]) -> tuple[str, str]:
    return number(_mean(curves["cosine"])), percent(_mean(curves["share"]))


def _mean(points: Points) -> float:
    values = [value for _, value in points if np.isfinite(value)]
    return float(np.mean(values)) if values else float("nan")
