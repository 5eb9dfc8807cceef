"""Rows that say the same become findings: doubles, contradictions, rows in two splits.

The same are texts that differ in case, punctuation and spacing alone, and pairs in either
order: plait.data's fingerprints, by which training notes what train and dev share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from plait.analysis.check.findings import num_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from plait.analysis.check.findings import Finding
    from plait.analysis.check.rows import SplitRows

APART = 0.2
"""Part of a score's range that two scores of one text may differ by."""


def check_duplicates(rows: SplitRows) -> Iterator[Finding]:
    """Tell of texts that stand there more than once, by whether their labels agree."""
    agreeing: list[int] = []
    contradicting: list[int] = []
    num_contradicted = 0
    for group in _groups(rows):
        if _contradict(rows, group):
            contradicting += group
            num_contradicted += 1
        else:
            agreeing += group[1:]
    if contradicting:
        details = [f"label {rows.name_label(row)}" for row in contradicting]
        texts = "text has" if num_contradicted == 1 else "texts have"
        yield rows.finding(
            "contradictions",
            "warning",
            f"{num_contradicted:,} {texts} different labels in {num_rows(len(contradicting))}",
            "decide on one label for each, or take them out",
            contradicting,
            details,
        )
    agreeing.sort()
    if agreeing:
        stand = "stands" if len(agreeing) == 1 else "stand"
        yield rows.finding(
            "duplicates",
            "note",
            f"{num_rows(len(agreeing))} {stand} there before, in the same words",
            "leave them out unless they should count more than once",
            agreeing,
        )


def check_overlap(first: SplitRows, second: SplitRows) -> Iterator[Finding]:
    """Tell of rows of the second split (dev, test, unlabelled) that the first (train) has, too."""
    shared = _find_shared(first, second)
    if len(shared) == 0:
        return
    told = f"{_count_shared(shared, second)} in {first.split} as well, "
    details = _tell_twins(first, second, shared)
    if second.split == "unlabelled":
        told += "to be learnt from twice: with the label and without"
        advice = "leave them out unless that is meant"
        yield second.finding("overlap", "note", told, advice, shared, details)
        return
    told += f"so {second.split} scores are flattered"
    advice = f"take them out of {first.split}"
    advice += ", or set data.drop_overlap" if first.split == "train" else ""
    yield second.finding("overlap", "warning", told, advice, shared, details)


def check_elsewhere(train: SplitRows, held: SplitRows) -> Iterator[Finding]:
    """Tell of rows of a task's dev or test that another task trains on."""
    shared = _find_shared(train, held)
    if len(shared) == 0:
        return
    yield held.finding(
        "overlap",
        "note",
        f"{_count_shared(shared, held)} in train of {train.task}, so the encoder learns these "
        "texts, with that task's labels",
        "hold the same texts out of both, or set data.drop_overlap",
        shared,
        _tell_twins(train, held, shared),
    )


def _find_shared(first: SplitRows, second: SplitRows) -> npt.NDArray[np.int64]:
    """Return the rows of the second that the first has, too."""
    return np.flatnonzero(np.isin(second.prints, first.prints))


def _count_shared(shared: npt.NDArray[np.int64], second: SplitRows) -> str:
    share = len(shared) / len(second)
    return f"{num_rows(len(shared))} ({share:.1%}) {'is' if len(shared) == 1 else 'are'}"


def _tell_twins(first: SplitRows, second: SplitRows, shared: npt.NDArray[np.int64]) -> list[str]:
    """Say of each shared row where the first of its like is."""
    known, where = np.unique(first.prints, return_index=True)
    twins = where[np.searchsorted(known, second.prints[shared])]
    return [f"as {place.unit} {place.line} of {place.file}" for place in first.places(twins)]


def _groups(rows: SplitRows) -> Iterator[list[int]]:
    """Give the rows of every text that stands there more than once, in order."""
    order = np.argsort(rows.prints, kind="stable")
    ends = np.flatnonzero(np.diff(rows.prints[order])) + 1
    several = [group for group in np.split(order, ends) if len(group) > 1]
    for group in sorted(several, key=lambda group: int(group[0])):
        yield group.tolist()


def _contradict(rows: SplitRows, group: list[int]) -> bool:
    if rows.labels is None:
        return False
    return rows.config.kind.contradict(rows.labels[group])
