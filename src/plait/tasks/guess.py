"""What `plait new` knows of a label column, and what a task kind guesses from it."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from plait.tasks.reading import LIST_MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_CLASSES = 500
FEW_NUMBERS = 20
"""Distinct whole numbers up to which they are taken for classes."""

SEPARATORS = ("|", ";", ",")
"""Separators between several labels, the likeliest first."""


def words_of(name: str) -> frozenset[str]:
    """Return the words of a column's name in lower case, without numbers at their end."""
    # macOS writes an accent as a separate character, which NFC joins.
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", unicodedata.normalize("NFC", name))
    words = (word.rstrip("0123456789").lower() for word in re.split(r"[\W_]+", apart))
    return frozenset(filter(None, words))


FIRM_LABEL_WORDS = words_of("label labels class category target gold y truth")
"""Words that hardly name anything but a label column."""
SCORE_WORDS = words_of(
    "score scores similarity relatedness relevance distance strength intensity valence arousal"
)
"""Words that name a measured value, even where it is written in whole numbers."""


@dataclass(frozen=True, slots=True)
class Guess:
    """Settings of a task that a kind guesses from its label column, and the reason."""

    why: str
    settings: dict[str, Any] = field(default_factory=dict)
    """Keys of [tasks.NAME]: labels, range, label_map, label_separator."""
    strays: tuple[str, ...] = ()
    """Values that are no label of this kind; their rows are skipped."""


@dataclass(frozen=True)
class LabelColumn:
    """A column of labels: its name and how often each value occurs."""

    name: str
    counts: Mapping[str, int]
    """Values as written; missing ones are left out."""

    @property
    def words(self) -> frozenset[str]:
        """Words of the column's name."""
        return words_of(self.name)

    @property
    def num_rows(self) -> int:
        """Rows that have a label."""
        return sum(self.counts.values())

    @cached_property
    def numbers(self) -> dict[str, float]:
        """Values that are numbers, where 95% of the rows have one; else empty.

        Values such as 01 and 007 are names, because their zeros are part of them.
        """
        found = {value: float(value) for value in self.counts if is_number(value)}
        if any(re.fullmatch(r"0\d+", value) for value in self.counts):
            return {}
        return found if sum(map(self.counts.__getitem__, found)) >= 0.95 * self.num_rows else {}

    @property
    def strays(self) -> tuple[str, ...]:
        """Values that are no number, in a column of numbers."""
        return tuple(value for value in self.counts if value not in self.numbers)

    @cached_property
    def decimal_comma(self) -> str | None:
        """A number with a decimal comma, where most values have one."""
        return find_decimal_comma(self.counts)

    @property
    def has_lists(self) -> bool:
        """Whether values are lists, in a file format that has lists."""
        return any(LIST_MARK in value for value in self.counts)

    @cached_property
    def spellings(self) -> list[str]:
        """One spelling of each value, the most frequent; case makes no difference."""
        found: dict[str, Counter[str]] = {}
        for value, count in self.counts.items():
            found.setdefault(value.casefold(), Counter())[value] += count
        return [found[key].most_common(1)[0][0] for key in sorted(found)]

    def split(self, *, chosen: bool) -> tuple[str, list[str]] | None:
        """Return the separator of several labels per row, and the labels; None without any.

        Unless the kind was chosen, labels must also occur in other combinations: few labels
        make many values.
        """
        for mark in (LIST_MARK, *SEPARATORS):
            rows = [[part.strip() for part in value.split(mark)] for value in self.counts]
            labels = {part for row in rows for part in row if part}
            if not any(len(row) > 1 for row in rows):
                continue
            short = all(len(label.split()) <= 3 for label in labels)
            if chosen or mark == LIST_MARK or (len(labels) < len(self.counts) and short):
                return mark, sorted(labels, key=str.casefold)
        return None


def is_number(text: str) -> bool:
    """Return whether a value is written as a finite number."""
    try:
        return math.isfinite(float(text)) and "_" not in text
    except ValueError:
        return False


def find_decimal_comma(counts: Mapping[str, int]) -> str | None:
    """Return a number with a decimal comma, such as 3,7, where most values have one.

    One value in twenty may be no number; a value with two commas is a list of labels.
    """
    if any(re.fullmatch(r"\d+(,\d+){2,}", value) for value in counts):
        return None
    numbers = [value for value in counts if re.fullmatch(r"[-+]?\d+(,\d+)?", value)]
    with_comma = [value for value in numbers if "," in value]
    total = sum(counts.values())
    if sum(map(counts.__getitem__, numbers)) < 0.95 * total:
        return None
    return with_comma[0] if sum(map(counts.__getitem__, with_comma)) > 0.5 * total else None
