"""Labels of a split become counts, and what is lopsided about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plait.analysis.check.findings import num_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from plait.analysis.check.findings import Finding
    from plait.analysis.check.rows import SplitRows

FEW = 5
"""Training rows of a class below which it is hardly learnt."""
MUCH = 0.8
"""Part of the rows that one class may have before accuracy stops telling anything."""
MOST_NAMED = 8
"""Classes that a sentence names."""


def count_labels(rows: SplitRows) -> dict[str, int]:
    """Count the rows of each class, in the classes' order; nothing for a score."""
    counts = None if rows.labels is None else rows.config.kind.count(rows.labels)
    if counts is None:
        return {}
    return {name: int(n) for name, n in zip(rows.config.labels, counts, strict=True)}


def check_balance(rows: SplitRows) -> Iterator[Finding]:
    """Tell of classes without rows or with few, of one that has nearly all, of a constant."""
    if rows.labels is None or rows.split != "train":
        return
    if len(np.unique(rows.labels, axis=0)) == 1:
        yield rows.finding(
            "balance",
            "warning",
            f"every row has the label {rows.name_label(0)}: there is nothing to learn",
            "add rows with another label",
        )
        return
    if not rows.config.labels:
        yield from _check_range(rows)
        return
    counts = count_labels(rows)
    empty = [name for name, count in counts.items() if count == 0]
    if empty:
        yield rows.finding(
            "balance",
            "warning",
            f"no row is labelled {_list(empty)}, which can then never be learnt",
            "add rows, or take the label out of the recipe",
        )
    rare = [f"{name} ({count})" for name, count in counts.items() if 0 < count < FEW]
    if rare:
        yield rows.finding(
            "balance",
            "warning",
            f"fewer than {FEW} rows have the label {_list(rare)}",
            "add rows, or join such classes to others",
        )
    largest = max(counts, key=lambda name: counts[name])
    share = counts[largest] / len(rows)
    if share >= MUCH and rows.labels.ndim == 1 and rows.config.metric in (None, "accuracy"):
        yield rows.finding(
            "balance",
            "warning",
            f"{share:.0%} of the rows are labelled {largest}, so answering always that has "
            "an accuracy as high",
            'set metric = "macro_f1" for the task, so that the best checkpoint is chosen by it',
        )


def _check_range(rows: SplitRows) -> Iterator[Finding]:
    assert rows.labels is not None
    low, high = rows.config.range
    least, most = float(rows.labels.min()), float(rows.labels.max())
    if most - least < 0.5 * (high - low):
        yield rows.finding(
            "balance",
            "note",
            f"scores go from {least:g} to {most:g} in {num_rows(len(rows))}, the range from "
            f"{low:g} to {high:g}",
            "set range to what the scores can be",
        )


def _list(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
