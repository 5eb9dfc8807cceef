"""Guess from names and values which columns hold the texts, the label, the id and the split."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from plait.errors import DataError, suggest
from plait.tasks.guess import (
    FIRM_LABEL_WORDS,
    find_decimal_comma,
    is_number,
    words_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from plait.analysis.draft.files import DataFile
    from plait.data import SplitName

TEXT_WORDS = words_of(
    "text texts sentence sent question review comment content body message tweet post title "
    "headline premise hypothesis query passage document doc utterance phrase description "
    "abstract summary paragraph article email mail subject context claim statement response "
    "reply input prompt snippet caption lyrics story anchor positive negative"
)
LABEL_WORDS = FIRM_LABEL_WORDS | words_of(
    "score similarity relatedness relevance sentiment topic intent emotion mood rating ratings "
    "star stars duplicate paraphrase polarity toxic toxicity spam stance genre entailment tag tags "
    "grade annotation judgment judgement verdict quality same is has type subjectivity acceptable "
    "acceptability priority severity urgency"
)
ID_WORDS = words_of("id ids idx uid uuid guid key pairid qid docid rowid")
META_WORDS = words_of(
    "source split set subset partition lang language locale date time timestamp year url link "
    "user author username annotator worker votes count length len file filename version "
    "confidence index row number fold domain"
)
"""Words for what accompanies a row and is seldom what a task asks for."""
SPLIT_COLUMN_WORDS = words_of("split set subset partition fold")
COLUMN_WORDS = TEXT_WORDS | LABEL_WORDS | ID_WORDS | META_WORDS

SPLIT_WORDS: dict[str, SplitName] = {
    **dict.fromkeys(("train", "training", "trn", "trainset"), "train"),
    **dict.fromkeys(("dev", "development", "val", "valid", "validation", "trial"), "dev"),
    **dict.fromkeys(("test", "testing", "testset", "tst", "heldout", "holdout"), "test"),
}

PAIRS = (
    *(pair.split() for pair in (
        "premise hypothesis", "query passage", "query document", "question answer",
        "question passage", "question sentence", "question context", "context question",
        "context response", "prompt response", "claim evidence", "first second", "left right",
        "anchor positive",
    )),
    *([head, rest] for head in ("title", "subject", "headline", "summary")
      for rest in ("body", "text", "content", "description", "review", "article", "message")),
)  # fmt: skip
"""Names of two columns that are read together."""

_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"
)
"""Characters of Thai, Lao, Burmese, Khmer, Japanese and Chinese, which write words together."""
_DATE = re.compile(r"\d{4}([-/.])\d{1,2}\1\d{1,2}([T ].*)?|\d{1,2}([-/.])\d{1,2}\3\d{2,4}([T ].*)?")


@dataclass(frozen=True)
class Column:
    """The first values of a column, as written."""

    name: str
    values: tuple[str, ...]
    """Stripped; empty where missing."""

    @cached_property
    def words(self) -> frozenset[str]:
        """Words of the column's name."""
        return words_of(self.name)

    @cached_property
    def filled(self) -> list[str]:
        """Values that are not missing."""
        return [value for value in self.values if value]

    @cached_property
    def distinct(self) -> int:
        """Number of different values."""
        return len(set(self.filled))

    @cached_property
    def mean_words(self) -> float:
        """Mean number of words of a value; two characters make one where words are not spaced."""
        counts = (max(len(v.split()), len(_UNSPACED.findall(v)) // 2) for v in self.filled)
        return sum(counts) / max(len(self.filled), 1)

    @cached_property
    def is_number(self) -> bool:
        """Whether 95% of the values are numbers; those with a decimal comma are refused later."""
        numbers = sum(map(is_number, self.filled))
        return bool(self.filled) and (numbers >= 0.95 * len(self.filled) or self.has_commas)

    @cached_property
    def has_commas(self) -> bool:
        """Whether the values are numbers with a decimal comma."""
        return bool(self.filled) and find_decimal_comma(Counter(self.filled)) is not None

    @cached_property
    def is_measured(self) -> bool:
        """Whether the values are numbers of which some have fractions, as scores mostly do."""
        whole = (float(v).is_integer() for v in self.filled if is_number(v))
        return self.has_commas or (self.is_number and not all(whole))

    @cached_property
    def is_date(self) -> bool:
        """Whether the values are dates."""
        return bool(self.filled) and all(map(_DATE.fullmatch, self.filled))

    @cached_property
    def is_object(self) -> bool:
        """Whether the values are objects of JSON, or structs of Parquet."""
        return bool(self.filled) and all(v[0] == "{" and v[-1] == "}" for v in self.filled)

    @cached_property
    def is_unique(self) -> bool:
        """Whether every row has a different value."""
        return 0 < len(self.values) == self.distinct

    @cached_property
    def is_text(self) -> bool:
        """Whether the column may be a text."""
        if not self.filled or self.distinct == 1:
            return False
        if self.is_number or self.is_date or self.is_object:
            return False
        repeats = self.distinct <= 0.5 * len(self.filled)
        if self.words & FIRM_LABEL_WORDS and repeats:
            return False
        if self.mean_words >= 3:
            return not (self.words & LABEL_WORDS and repeats and len(self.filled) > 20)
        named = bool(self.words & TEXT_WORDS) and not self.words & (LABEL_WORDS | ID_WORDS)
        return (named or self.mean_words >= 1.5) and not (repeats and not named)

    @cached_property
    def label_score(self) -> float:
        """How likely the column is the label; 0 or less where it cannot be."""
        words, num_rows = self.words, len(self.filled)
        if not self.filled or not words or self.is_object:
            return 0.0
        # Classes with hardly two rows each are believed only where the name says label.
        few = self.distinct <= max(2, (0.9 if words & FIRM_LABEL_WORDS else 0.5) * num_rows)
        if not self.is_number and (not few or self.mean_words > 5):
            return 0.0
        # A few scores may all differ; fractions are no ids.
        is_score = (self.is_number and bool(words & LABEL_WORDS)) or self.is_measured
        if words & ID_WORDS or (self.is_unique and num_rows > 10 and not is_score):
            return 0.0
        score = 100.0 * bool(words & FIRM_LABEL_WORDS) + 60.0 * bool(words & LABEL_WORDS)
        score += 10.0 * few - 50.0 * (bool(words & META_WORDS) or self.is_date)
        score += 5.0 * (self.is_measured and not few)
        score -= 50.0 * (1 - num_rows / len(self.values))
        # Sentences repeat as well.
        return score - 5.0 * (self.mean_words >= 3 and not self.is_number)


@dataclass(frozen=True, slots=True)
class Choice:
    """Columns that the user named; the others are guessed."""

    text: tuple[str, ...] = ()
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Roles:
    """The role of each column."""

    text: tuple[str, ...]
    label: tuple[str, ...]
    """One column, or one of 0 and 1 for each label."""
    id: str | None
    split: str | None
    """Column that says which split a row is of."""
    why: dict[str, str]
    """Reason for each of them, by field."""
    notes: list[str]
    """Notes about the columns for the user."""


def find_roles(file: DataFile, choice: Choice, *, may_be_several: bool) -> Roles:
    """Guess what the columns of a training file hold; raise DataError where that is unclear.

    `may_be_several` says whether several columns may be the labels of one task.
    """
    columns, path = file.columns, file.path
    given = _split_label(choice.label, columns)
    for name in (*choice.text, *given):
        if name not in columns:
            raise DataError(f"there is no column {name!r}{suggest(name, columns)}", path=path)
        if columns[name].is_object:
            raise DataError(_objects(name), path=path)
    if len(given) > 1:
        _require_flags([columns[name] for name in given], path, may_be_several=may_be_several)
    text, why_text = choice.text, "as given"
    if not text:
        free = [c for c in columns.values() if c.name not in given]
        text, why_text = _find_text([c for c in free if c.is_text])
    rest = {name: column for name, column in columns.items() if name not in text}
    split = _find_split(rest.values())
    asked = [column for name, column in rest.items() if name != split]
    # A constant teaches nothing. Of equals the last one: labels come late.
    ranked = sorted(
        (c.distinct > 1, c.label_score, place) for place, c in enumerate(asked) if c.label_score > 0
    )[::-1]
    likely = [asked[place] for *_, place in ranked]
    notes = [_objects(column.name) for column in columns.values() if column.is_object]
    label, why_label = given, "as given"
    if not label and may_be_several and (label := _find_flags(asked, likely)):
        why_label = f"{len(label)} columns with only 0 and 1"
        notes.append(
            "columns with only 0 and 1 are used as the labels of one multi-label task; choose "
            "other columns, or a single one, with --label"
        )
    if not label and likely:
        label, best = (likely[0].name,), likely[0]
        named = "named like a label, " if best.words & LABEL_WORDS else ""
        why_label = f"{named}{best.distinct} different values in {len(best.filled):,} rows"
    for found, what in ((text, "text"), (label, "label")):
        if not found:
            among = "; ".join([f"the columns are {_list(columns)}", *file.notes, *notes])
            raise DataError(
                f"no column looks like a {what} ({among}); name it with --{what}", path=path
            )
    ids = (c.name for c in rest.values() if c.name not in label and c.words & ID_WORDS)
    row_id = next((n for n in ids if rest[n].is_unique), None)
    others = [c.name for c in likely if c.name not in label and c.distinct > 1]
    if others:
        shown = "columns" if len(others) > 1 else "column"
        notes.append(
            f"other possible label {shown}: {_list(others)}; choose with --label, or add a task "
            "with --task"
        )
    if not split and (doubt := _doubt_split(rest.values())):
        notes.append(doubt)
    why = {"text": why_text, "label": why_label, "split": "its values name splits" if split else ""}
    why["id"] = "named so, every row has its own" if row_id else ""
    return Roles(text, label, row_id, split, why, notes)


def _objects(name: str) -> str:
    return f"column {name!r} holds objects, which are not supported; put their values into columns"


def _list(names: Collection[str]) -> str:
    return ", ".join(repr(name[:40]) for name in names)


# --- texts -------------------------------------------------------------------------------


def _find_text(likely: Sequence[Column]) -> tuple[tuple[str, ...], str]:
    """Return one column, or two whose names belong together, and the reason."""
    if not likely:
        return (), ""
    names = [column.name for column in likely]
    if pair := _find_pair(names):
        return pair, "two texts whose names belong together"
    best = max(likely, key=lambda c: (bool(c.words & TEXT_WORDS), c.mean_words))
    named = "named like a text, " if best.words & TEXT_WORDS else ""
    rest = [name for name in names if name != best.name]
    more = f"; {_list(rest)} could be read with it (--text)" if rest else ""
    return (best.name,), f"{named}{best.mean_words:.0f} words a row{more}"


def _find_pair(names: Sequence[str]) -> tuple[str, str] | None:
    """Return two names that differ in a number or letter at their end, or go together."""
    for i, first in enumerate(names):
        for second in names[i + 1 :]:
            stem = _stem_of(first)
            if stem is not None and stem == _stem_of(second):
                return first, second
    for one, other in PAIRS:
        for a in names:
            for b in names:
                if a != b and one in words_of(a) and other in words_of(b):
                    return a, b
    return None


def _stem_of(name: str) -> str | None:
    """Return a name without the mark that tells siblings apart: sentence1, text_b, question two."""
    marks = r"\d|(?<=[-_ .])(?:[abAB]|[Oo]ne|[Tt]wo)|(?<=[a-z])(?:[AB]|One|Two)"
    match = re.fullmatch(rf"(.*?)[-_ .]?({marks})", name)
    if match is None:
        return "" if name.lower() in ("a", "b") else None
    return match[1].lower()


# --- labels ------------------------------------------------------------------------------


def _split_label(given: str | None, columns: Mapping[str, Column]) -> tuple[str, ...]:
    """Return the columns that --label names: one, whose name may have commas in it, or several."""
    if not given or given in columns:
        return (given,) if given else ()
    return tuple(dict.fromkeys(part.strip() for part in given.split(",") if part.strip()))


def _require_flags(columns: Sequence[Column], path: Path, *, may_be_several: bool) -> None:
    """Refuse several label columns that do not say 0 or 1 each."""
    message = f"--label names {len(columns)} columns, each of which must hold 0 or 1 for a label"
    if not may_be_several:
        raise DataError(f"{message}; that is --kind labels", path=path)
    for column in columns:
        for value in column.filled:
            is_flag = is_number(value) and float(value) in (0, 1)
            if not is_flag and value.lower() not in ("true", "false"):
                raise DataError(f"{message}, but {column.name!r} has {value[:40]!r}", path=path)


def _find_flags(columns: Sequence[Column], likely: Sequence[Column]) -> tuple[str, ...]:
    """Return columns of 0 and 1 that are the labels of one task; none where that is unclear.

    It is unclear where another column is text or may be the label, where some of them are called
    label and others not, or where one is named like an id or what accompanies a row.
    """
    flags = [c for c in columns if c.filled == [*c.values] and {*c.filled} <= {"0", "1"}]
    firm = {bool(column.words & FIRM_LABEL_WORDS) for column in flags}
    unclear = (
        sum(column.distinct == 2 for column in flags) < 2
        or any(column not in flags for column in likely)
        or any(column.is_text for column in columns)
        or any(column.words & (ID_WORDS | META_WORDS) for column in flags)
        or len(firm) > 1
    )
    return () if unclear else tuple(column.name for column in flags)


# --- splits ------------------------------------------------------------------------------


def read_split_word(written: str) -> SplitName | None:
    """Return the split that a value names: 'validation', 'SICK_train.txt'."""
    for word in re.split(r"[^a-z]+", join_held_out(written.lower())):
        if word in SPLIT_WORDS:
            return SPLIT_WORDS[word]
    return None


def join_held_out(text: str) -> str:
    """Write 'held-out' and 'hold out' as one word."""
    pattern = r"(?<![a-z])(held|hold)[-_. ](?=out(?![a-z]))"
    return re.sub(pattern, r"\1", text, flags=re.IGNORECASE)


def _find_split(columns: Collection[Column]) -> str | None:
    """Return the column that says which split a row is of, by its name and values.

    Under any other name, it must hold nothing but the words themselves, train and another.
    """
    for column in columns:
        named = [read_split_word(value) for value in column.filled]
        if named and all(named) and column.words & SPLIT_COLUMN_WORDS:
            return column.name
    for column in columns:
        splits = {SPLIT_WORDS.get(value.lower()) for value in column.filled}
        if "train" in splits and len(splits) > 1 and None not in splits:
            return column.name
    return None


def _doubt_split(columns: Collection[Column]) -> str:
    """Say which value of a column called split, beside train or so, names no split."""
    for column in columns:
        named = {value: read_split_word(value) for value in column.filled}
        odd = [value for value, split in named.items() if split is None]
        if odd and any(named.values()) and column.words & SPLIT_COLUMN_WORDS:
            return (
                f"column {column.name!r} is ignored, because {odd[0][:40]!r} names no split; write "
                "train, dev or test there, or choose rows with `where` in the recipe"
            )
    return ""
