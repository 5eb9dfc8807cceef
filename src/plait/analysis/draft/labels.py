"""Values of a label column become a kind of task: classes, yes or no, labels, or a score."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from plait.analysis.draft.words import (
    FIRM_LABEL_WORDS,
    SCORE_WORDS,
    find_decimal_comma,
    is_number,
    words_of,
)
from plait.errors import UsageError
from plait.tasks import Kind
from plait.tasks.reading import LIST_MARK, plain_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_CLASSES = 500
MOST_NUMBERS = 20
"""Different whole numbers that are still taken for classes, whatever the column is called."""

YES_AND_NO = (
    ("no", "yes"),
    ("false", "true"),
    ("n", "y"),
    ("f", "t"),
    ("neg", "pos"),
    ("negative", "positive"),
    ("different", "same"),
    ("incorrect", "correct"),
    ("nein", "ja"),
    ("nee", "ja"),
    ("nej", "ja"),
    ("non", "oui"),
    ("no", "sí"),
    ("no", "sì"),
    ("no", "si"),
    ("não", "sim"),
    ("nie", "tak"),
    ("нет", "да"),
    ("否", "是"),
)
"""Words for no and yes, in this order."""

SEPARATORS = ("|", ";", ",")
"""What may stand between labels, the likeliest first."""

RANGES = ((0, 1), (-1, 1), (1, 5), (0, 5), (1, 7), (0, 10), (1, 10), (0, 100))
"""Usual ends of scores: the narrowest is taken that holds all values, which fill half of it."""


@dataclass(frozen=True, slots=True)
class LabelGuess:
    """A kind of task and how its labels are written."""

    kind: str
    """One of plait.types.Kind."""
    why: str
    labels: tuple[str, ...] | int = ()
    """Words for the classes, or their number where the file has class numbers; for yes and no,
    empty where the file writes them as plait does."""
    range: tuple[float, float] | None = None
    label_map: dict[str, int] = field(default_factory=dict)
    strays: tuple[str, ...] = ()
    """Values that are no label of this kind: their rows are skipped."""
    separator: str | None = None
    """What stands between the labels of a row that has several, or may where rows are lists."""


def guess_kind(
    counts: Mapping[str, int], column: str, *, kind: str | None = None, where: str = ""
) -> LabelGuess:
    """Guess what a column of labels asks for, from how often each value stands there."""
    filled = {value: count for value, count in counts.items() if value}
    if not filled:
        raise UsageError(f"{where}: column {column!r} is empty; name another with --label")
    if kind is not None and kind not in get_args(Kind):
        raise UsageError(f"--kind {kind!r} is none of {', '.join(get_args(Kind))}")
    total = sum(filled.values())
    numeric = {v: float(v) for v in filled if is_number(v)}
    if kind != "score" and any(re.fullmatch(r"0\d+", value) for value in filled):
        numeric = {}  # 01 and 007 are names, whose zeros belong to them
    if kind in (None, "score") and (example := find_decimal_comma(filled)):
        raise UsageError(
            f"{where}: column {column!r} has commas in its numbers, such as {example!r}; write "
            f"{example.replace(',', '.')!r}, or say --kind labels if they stand between labels"
        )
    if kind in (None, "labels") and (listed := _find_written_list(filled)):
        raise UsageError(
            f"{where}: column {column!r} has lists written as text, such as {listed[:40]!r}; write "
            "their labels with ; between them, or save the lists as JSON lines or Parquet"
        )
    if kind in (None, "labels") and (several := _guess_several(filled, forced=kind == "labels")):
        return several
    if any(LIST_MARK in value for value in filled):
        raise UsageError(f"{where}: column {column!r} holds lists of labels; that is --kind labels")
    if kind == "labels":
        raise UsageError(
            f"{where}: column {column!r} has one label a row, with no |, ; or , between several; "
            "that is --kind classes"
        )
    if sum(filled[v] for v in numeric) >= 0.95 * total:
        strays = tuple(v for v in filled if v not in numeric)
        return _guess_numbers(numeric, filled, column, kind, strays, where)
    if kind == "score":
        word = next(value for value in filled if value not in numeric)
        raise UsageError(
            f"{where}: column {column!r} holds words, such as {word[:40]!r}, not scores; see --kind"
        )
    return _guess_words(filled, column, kind, where)


def _find_written_list(counts: Mapping[str, int]) -> str | None:
    """Return a list that stands in a text as a program writes it, where all values are such."""
    if not all(value[0] == "[" and value[-1] == "]" for value in counts):
        return None
    return next((value for value in counts if re.search(r"""[,'"]""", value)), None)


def _guess_several(counts: Mapping[str, int], *, forced: bool) -> LabelGuess | None:
    """Recognise rows of several labels."""
    for mark in (LIST_MARK, *SEPARATORS):
        parts = [[part.strip() for part in value.split(mark)] for value in counts]
        known = {part for row in parts for part in row if part}
        joined = sum(len(row) > 1 for row in parts)
        is_list = mark == LIST_MARK
        # Labels that come together also come in other company: few parts make many values.
        certain = forced or is_list
        if joined and (certain or (len(known) < len(counts) and all(map(_is_short, known)))):
            how = "lists of labels" if is_list else f"several labels a row, {mark!r} between them"
            named = tuple(sorted(known, key=str.casefold))
            free = (sign for sign in SEPARATORS if not any(sign in word for word in known))
            sign = next(free, SEPARATORS[0]) if is_list else mark
            why = f"{how}; {len(known)} different ones"
            return LabelGuess("labels", why, named, separator=sign)
    return None


def _is_short(label: str) -> bool:
    return len(label.split()) <= 3


# --- numbers -----------------------------------------------------------------------------


def _guess_numbers(
    numeric: Mapping[str, float],
    counts: Mapping[str, int],
    column: str,
    kind: str | None,
    strays: tuple[str, ...],
    where: str,
) -> LabelGuess:
    values = sorted(set(numeric.values()))
    whole = all(value.is_integer() for value in values)
    words = words_of(column)
    low, high = values[0], values[-1]
    if kind == "score" or not whole:
        return _score(values, f"numbers from {low:g} to {high:g}", strays)
    if kind in (None, "binary") and set(values) <= {0, 1}:
        return LabelGuess("binary", "0 and 1", strays=strays)
    if kind in (None, "binary") and set(values) == {-1, 1}:
        return LabelGuess("binary", "-1 and 1", label_map={"-1": 0, "1": 1}, strays=strays)
    if kind == "binary":
        if len(values) != 2:
            raise UsageError(
                f"{where}: column {column!r} has {len(values)} different values; binary has two"
            )
        named = {plain_text(v) or "": i for i, v in enumerate(values)}
        return LabelGuess("binary", "two numbers", label_map=named, strays=strays)
    num_rows = sum(counts[v] for v in numeric)
    dense = low in (0, 1) and len(values) > 0.8 * (high - low + 1) and num_rows >= 5 * len(values)
    few = len(values) <= MOST_NUMBERS
    many_but_named = dense and len(values) <= MOST_CLASSES and bool(words & FIRM_LABEL_WORDS)
    if kind == "classes" or (not words & SCORE_WORDS and (few or many_but_named)):
        return _numbered_classes(values, strays)
    why = "named like a score" if words & SCORE_WORDS else f"{len(values)} different numbers"
    return _score(values, f"{why}, from {low:g} to {high:g}", strays)


def _numbered_classes(values: Sequence[float], strays: tuple[str, ...]) -> LabelGuess:
    low, high = int(values[0]), int(values[-1])
    shown = f"whole numbers from {low} to {high}"
    if low == 0 and 2 * len(values) > high:  # gaps are classes without rows, not other numbers
        return LabelGuess("classes", shown, high + 1, strays=strays)
    words = tuple(str(int(value)) for value in values)
    return LabelGuess("classes", f"{len(values)} different {shown}", words, strays=strays)


def _score(values: Sequence[float], why: str, strays: tuple[str, ...]) -> LabelGuess:
    low, high = values[0], values[-1]
    for ends in sorted(RANGES, key=lambda ends: ends[1] - ends[0]):
        if ends[0] <= low and high <= ends[1] and high - low > 0.5 * (ends[1] - ends[0]):
            found = (float(ends[0]), float(ends[1]))
            return LabelGuess("score", why, range=found, strays=strays)
    ends = (math.floor(low), math.ceil(high))
    # A score needs room between its ends, also where all values are the same.
    found = (float(ends[0]), float(max(ends[1], ends[0] + 1)))
    return LabelGuess("score", why, range=found, strays=strays)


# --- words -------------------------------------------------------------------------------


def _guess_words(
    counts: Mapping[str, int], column: str, kind: str | None, where: str
) -> LabelGuess:
    # Case is the same to the reader of labels; the commonest spelling stands for all.
    spellings: dict[str, Counter[str]] = {}
    for value, count in counts.items():
        spellings.setdefault(value.casefold(), Counter())[value] += count
    num_rows = sum(counts.values())
    if len(spellings) > MOST_CLASSES or (len(spellings) > 0.5 * num_rows and num_rows > 10):
        raise UsageError(
            f"{where}: column {column!r} has {len(spellings):,} different values in "
            f"{num_rows:,} rows, which are no classes; name another with --label"
        )
    spelled = {key: found.most_common(1)[0][0] for key, found in spellings.items()}
    if len(spelled) == 2 and kind != "classes":
        ordered = _find_yes(set(spelled))
        if ordered is not None:
            labels = tuple(spelled[key] for key in ordered)
            default = ordered in (("no", "yes"), ("false", "true"))
            return LabelGuess("binary", f"{labels[0]} and {labels[1]}", () if default else labels)
    if kind == "binary":
        if len(spelled) != 2:
            raise UsageError(
                f"{where}: column {column!r} has {len(spelled)} different values; binary has two"
            )
        return LabelGuess("binary", "two words", tuple(spelled[key] for key in sorted(spelled)))
    labels = tuple(spelled[key] for key in sorted(spelled))
    return LabelGuess("classes", f"{len(labels)} different words", labels)


def _find_yes(words: set[str]) -> tuple[str, str] | None:
    """Return two words as no and yes, where it is plain which is which."""
    for pair in YES_AND_NO:
        if set(pair) == words:
            return pair
    first, second = sorted(words)
    for no, yes in ((first, second), (second, first)):
        if re.fullmatch(rf"(?:not?|non|un|in)[-_ ]?{re.escape(yes)}", no):
            return no, yes
    return None
