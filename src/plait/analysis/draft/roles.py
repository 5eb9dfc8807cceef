"""Columns become roles: which hold the texts, which the label, which names the row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plait.analysis.draft.files import HOLDS_OBJECTS
from plait.analysis.draft.names import SPLIT_WORDS, read_split_word
from plait.analysis.draft.words import (
    FIRM_LABEL_WORDS,
    ID_WORDS,
    LABEL_WORDS,
    META_WORDS,
    PAIRS,
    SPLIT_COLUMN_WORDS,
    TEXT_WORDS,
    is_number,
    stem_of,
    words_of,
)
from plait.errors import DataError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.analysis.draft.files import Column, LookedAt


@dataclass(frozen=True, slots=True)
class Guess:
    """What was guessed, and why."""

    value: str
    why: str


@dataclass(frozen=True, slots=True)
class Roles:
    """What a file's columns are for."""

    text: tuple[str, ...]
    label: tuple[str, ...]
    """One column, or one of 0 and 1 for each label."""
    id: str | None
    split: str | None
    """Column that says which split a row is of."""
    why: dict[str, str]
    """Reason for each of them, by its name here."""
    others: tuple[str, ...]
    """Columns that could be the label as well."""
    doubt: str = ""
    """Why a column that is called split is not followed; nothing where none is so."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Columns that the user named."""

    text: tuple[str, ...] = ()
    label: str | None = None
    id: str | None = None


def find_roles(file: LookedAt, wanted: Wanted, *, may_be_several: bool = True) -> Roles:
    """Tell what the columns of a training file are for; raise where there is no telling.

    `may_be_several` says whether several columns may be the labels of one task.
    """
    columns = file.columns
    told = _read_label(wanted.label, columns)
    for name in (*wanted.text, *told, wanted.id):
        if name and name not in columns:
            raise DataError(f"there is no column {name!r}{suggest(name, columns)}", path=file.given)
        if name and columns[name].is_object:
            raise DataError(f"column {name!r} {HOLDS_OBJECTS}", path=file.given)
    if len(told) > 1:
        _require_flags(told, file, may_be_several=may_be_several)
    why: dict[str, str] = {}
    free = {n: c for n, c in columns.items() if n not in (*told, wanted.id)}
    if wanted.text:
        text, why["text"] = wanted.text, "as given"
    else:
        text, why["text"] = _find_text(file, free)
    free = {n: c for n, c in columns.items() if n not in text}
    split = _find_split(free)
    asked = {n: c for n, c in free.items() if n not in (split, wanted.id)}
    ranked = _rank_labels(asked)
    if told:
        label, why["label"] = told, "as given"
    elif may_be_several and (flags := _find_flags(asked, ranked)):
        label, why["label"] = flags, f"{len(flags)} columns that hold nothing but 0 and 1"
    elif ranked:
        label = (ranked[0],)
        why["label"] = _why_label(columns[ranked[0]])
    else:
        told_apart = "".join(f"; {note}" for note in file.notes)
        raise DataError(
            f"no column looks like a label (the columns are {_list(columns)}{told_apart}); "
            "name it with --label",
            path=file.given,
        )
    name = wanted.id if wanted.id is not None else _find_id(free, label)
    why["id"] = "as given" if wanted.id else "named so, every row has its own" if name else ""
    why["split"] = "its values name splits" if split else ""
    others = tuple(name for name in ranked if name not in label and columns[name].distinct > 1)
    doubt = "" if split else _doubt_split(free)
    return Roles(text, label, name or None, split, why, others, doubt)


def _read_label(told: str | None, columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Return the columns that --label names: one, whose name may have commas in it, or several."""
    if not told or told in columns or "," not in told:
        return (told,) if told else ()
    return tuple(dict.fromkeys(part.strip() for part in told.split(",") if part.strip()))


def _require_flags(names: Sequence[str], file: LookedAt, *, may_be_several: bool) -> None:
    """Refuse several columns for a label that do not say yes or no each."""
    told = f"--label names {len(names)} columns, each of which should say 0 or 1 for a label"
    if not may_be_several:
        raise DataError(f"{told}; that is --kind labels", path=file.given)
    for name in names:
        for value in file.columns[name].filled:
            if value.lower() not in ("true", "false") and not _is_flag(value):
                raise DataError(f"{told}, but {name!r} has {value[:40]!r}", path=file.given)


def _is_flag(value: str) -> bool:
    return is_number(value) and float(value) in (0, 1)


# --- texts -------------------------------------------------------------------------------


def _find_text(file: LookedAt, columns: Mapping[str, Column]) -> tuple[tuple[str, ...], str]:
    likely = [c for c in columns.values() if _is_text(c)]
    if not likely:
        told_apart = "".join(f"; {note}" for note in file.notes)
        raise DataError(
            f"no column looks like text (the columns are {_list(columns)}{told_apart}); "
            "name it with --text",
            path=file.given,
        )
    names = [column.name for column in likely]
    if pair := _find_pair(names):
        return pair, "two texts whose names belong together"
    best = max(likely, key=lambda c: (bool(words_of(c.name) & TEXT_WORDS), c.mean_words))
    words = f"{best.mean_words:.0f} words a row"
    named = "named like a text, " if words_of(best.name) & TEXT_WORDS else ""
    rest = [name for name in names if name != best.name]
    passed = f"; {_list(rest)} could be read with it (--text)" if rest else ""
    return (best.name,), f"{named}{words}{passed}"


def _is_text(column: Column) -> bool:
    if not column.filled or column.is_number or column.distinct == 1:
        return False
    if column.is_date or column.is_object:
        return False
    words = words_of(column.name)
    repeats = column.distinct <= 0.5 * len(column.filled)
    if words & FIRM_LABEL_WORDS and repeats:
        return False
    if column.mean_words >= 3:
        return not (words & LABEL_WORDS and repeats and len(column.filled) > 20)
    named = bool(words & TEXT_WORDS) and not words & (LABEL_WORDS | ID_WORDS)
    return (named or column.mean_words >= 1.5) and not (repeats and not named)


def _find_pair(names: Sequence[str]) -> tuple[str, str] | None:
    """Return two names that differ in a number or letter at their end, or go together."""
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            stem = stem_of(first)
            if stem is not None and stem == stem_of(second):
                return first, second
    for first, second in PAIRS:
        for a in names:
            for b in names:
                if a != b and first in words_of(a) and second in words_of(b):
                    return a, b
    return None


# --- label, id, split --------------------------------------------------------------------


def _rank_labels(columns: Mapping[str, Column]) -> list[str]:
    """Return the columns that may be the label, the likeliest first."""
    ranked = []
    for place, column in enumerate(columns.values()):
        words, num_rows = words_of(column.name), len(column.filled)
        if not column.filled or not words or column.is_object:
            continue
        # Many classes with hardly two rows each are believed where the name says label.
        part = 0.9 if words & FIRM_LABEL_WORDS else 0.5
        few = column.distinct <= max(2, part * num_rows)
        # Numbers with a comma are refused later, by a sentence that says what to do.
        is_number = column.is_number or column.has_decimal_commas
        is_measured = column.is_measured or column.has_decimal_commas
        if not is_number and (not few or column.mean_words > 5):
            continue
        # All of few scores may differ; and no row is named by a fraction.
        is_score = (is_number and bool(words & LABEL_WORDS)) or is_measured
        if words & ID_WORDS or (column.is_unique and num_rows > 10 and not is_score):
            continue
        score = 100.0 * bool(words & FIRM_LABEL_WORDS) + 60.0 * bool(words & LABEL_WORDS)
        score += 10.0 * few - 50.0 * (bool(words & META_WORDS) or column.is_date)
        if is_measured and not few:
            score += 5.0  # a score, where nothing else is likelier
        score -= 50.0 * (1 - num_rows / len(column.values))
        if column.mean_words >= 3 and not column.is_number:
            score -= 5.0  # sentences come again, too
        if score > 0:
            # One value throughout teaches nothing. Of equals the last: labels come late.
            ranked.append((column.distinct > 1, score, place, column.name))
    return [name for *_, name in sorted(ranked, reverse=True)]


def _find_flags(columns: Mapping[str, Column], ranked: Sequence[str]) -> tuple[str, ...]:
    """Return columns of 0 and 1 that are the labels of one task; none where that is not plain.

    It is not where another column is text or may be the label, where one of them is called the
    label and the others are not, or where one is named like an id or what goes along with a row.
    """
    flags = [c for c in columns.values() if c.filled == [*c.values] and {*c.filled} <= {"0", "1"}]
    names = tuple(column.name for column in flags)
    words = [words_of(name) for name in names]
    firm = [bool(own & FIRM_LABEL_WORDS) for own in words]
    doubtful = (
        sum(column.distinct == 2 for column in flags) < 2
        or not {*ranked} <= {*names}
        or any(_is_text(column) for column in columns.values())
        or any(own & (ID_WORDS | META_WORDS) for own in words)
        or any(firm) != all(firm)
    )
    return () if doubtful else names


def _why_label(column: Column) -> str:
    named = "named like a label, " if words_of(column.name) & LABEL_WORDS else ""
    return f"{named}{column.distinct} different values in {len(column.filled):,} rows"


def _find_id(columns: Mapping[str, Column], label: Sequence[str]) -> str | None:
    for column in columns.values():
        if column.name not in label and words_of(column.name) & ID_WORDS and column.is_unique:
            return column.name
    return None


def _find_split(columns: Mapping[str, Column]) -> str | None:
    """Return the column that says which split a row is of, by its name and by what it holds.

    Under another name, it must hold nothing but the words themselves, train and another.
    """
    for column in columns.values():
        named = [read_split_word(value) for value in column.filled]
        if named and all(named) and words_of(column.name) & SPLIT_COLUMN_WORDS:
            return column.name
    for column in columns.values():
        splits = {SPLIT_WORDS.get(value.lower()) for value in column.filled}
        if "train" in splits and len(splits) > 1 and None not in splits:
            return column.name
    return None


def _doubt_split(columns: Mapping[str, Column]) -> str:
    """Say of a column called split which of its words, beside train or so, names none."""
    for column in columns.values():
        named = {value: read_split_word(value) for value in column.filled}
        odd = [value for value, split in named.items() if split is None]
        if odd and any(named.values()) and words_of(column.name) & SPLIT_COLUMN_WORDS:
            return (
                f"column {column.name!r} is not followed, since {odd[0][:40]!r} names no split: "
                "all rows are taken alike; write train, dev or test there, or choose rows with "
                "`where` in the recipe"
            )
    return ""


def _list(names: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(repr(name[:40]) for name in names)
