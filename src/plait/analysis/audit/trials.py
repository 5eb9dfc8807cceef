"""What is asked of a model: trials, each a text before and after a change, gathered in probes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np

Texts = tuple[str, ...]
Change: TypeAlias = "Callable[[Texts, np.random.Generator], Texts | None]"
"""Returns changed texts, or None where it finds nothing to change."""
Generators: TypeAlias = "Callable[[str], np.random.Generator]"
"""A generator for each name of a probe."""
Should = Literal["stay", "move", "agree", "either"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One example before and after a change."""

    before: Texts
    after: Texts
    source: int
    """The sentence or row it was made from: trials of one source tell little more than one."""
    neutral: tuple[Texts, Texts] | None = None
    """The same example before and after a change that should matter to nobody."""
    way: int = 0
    """Where praise should go: +1 up, -1 down, 0 not known."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Trials of one kind of change."""

    name: str
    should: Should
    """What answers should do: stay, move, be all alike, or either where nobody can say."""
    trials: tuple[Trial, ...]


def change_rows(
    rows: Sequence[Texts],
    change: Change,
    generator: np.random.Generator,
    most: int,
) -> Iterator[tuple[int, Texts, Texts]]:
    """Yield up to `most` (row number, texts, changed texts) of rows that can be changed, drawn.

    A row that a change leaves as it is, or empty, is passed over.
    """
    count = 0
    for row in generator.permutation(len(rows)):
        if count == most:
            return
        after = change(rows[row], generator)
        if after is None or after == rows[row] or not all(text.strip() for text in after):
            continue
        count += 1
        yield int(row), rows[row], after
