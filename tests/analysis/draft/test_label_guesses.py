"""Counts of labels become kinds of tasks, which plait's own reader of labels agrees with."""

from __future__ import annotations

import pytest

from plait.analysis.draft.labels import guess_kind
from plait.config import TaskConfig
from plait.errors import UsageError
from plait.tasks.reading import LIST_MARK


def even(*values: str, count: int = 10) -> dict[str, int]:
    return dict.fromkeys(values, count)


@pytest.mark.parametrize(
    ("values", "column", "expected"),
    [
        (even("0", "1"), "label", ("binary", (), None)),
        (even("0.0", "1.0", ""), "is_duplicate", ("binary", (), None)),
        (even("-1", "1"), "polarity", ("binary", (), None)),
        (even("false", "true"), "spam", ("binary", (), None)),
        (even("N", "Y"), "spam", ("binary", ("N", "Y"), None)),
        (
            even("entailment", "not_entailment"),
            "y",
            ("binary", ("not_entailment", "entailment"), None),
        ),
        (even("ham", "spam"), "y", ("classes", ("ham", "spam"), None)),
        (even("01", "02", "10"), "code", ("classes", ("01", "02", "10"), None)),
        (even("00", "01"), "code", ("classes", ("00", "01"), None)),
        (even("0", "1", "2", "3", "4"), "sentiment", ("classes", 5, None)),
        (even("0", "1", "3"), "sentiment", ("classes", 4, None)),
        (even("1", "2", "3", "4", "5"), "stars", ("classes", ("1", "2", "3", "4", "5"), None)),
        (even("1", "2", "3", "4", "5"), "similarity", ("score", (), (1.0, 5.0))),
        (even("0.2", "4.8", "2.5"), "label", ("score", (), (0.0, 5.0))),
        (even("0.25", "0.75", "1"), "label", ("score", (), (0.0, 1.0))),
        (even("250.5", "900.2"), "price", ("score", (), (250.0, 901.0))),
        (even(*map(str, range(60))), "label", ("classes", 60, None)),
        (even(*map(str, range(60))), "age", ("score", (), (0.0, 100.0))),
        (even("Good", "bad") | {"good": 3}, "y", ("classes", ("bad", "Good"), None)),
        (
            even("FAVOR", "AGAINST", "NONE"),
            "stance",
            ("classes", ("AGAINST", "FAVOR", "NONE"), None),
        ),
    ],
)
def test_kinds(values, column, expected):
    guess = guess_kind(values, column)
    assert (guess.kind, guess.labels, guess.range) == expected
    table = {"kind": guess.kind, "text": ("t",), "label_map": guess.label_map}
    table |= {"labels": guess.labels} if guess.labels else {}
    table |= {"range": guess.range} if guess.range else {}
    reader = TaskConfig(**table).build_reader(("y",), guess.label_map)
    read = {reader.read(value) for value in values if value}
    assert len(read) > 1  # every value is a label, and they are not all the same


def test_a_kind_that_was_asked_for():
    ones = even("1", "2", "3")
    assert guess_kind(ones, "y", kind="score").range == (1.0, 3.0)
    assert guess_kind(even("0", "1"), "y", kind="classes").labels == 2
    assert guess_kind(even("1", "2"), "y", kind="binary").label_map == {"1": 0, "2": 1}
    for values, kind, told in (
        (ones, "binary", "binary has two"),
        (even("a", "b"), "score", "holds words, such as 'a', not scores"),
        (ones, "ranks", "none of classes, binary"),
    ):
        with pytest.raises(UsageError, match=told):
            guess_kind(values, "y", kind=kind)


@pytest.mark.parametrize("kind", ["classes", "binary", "score"])
def test_lists_are_labels(kind):
    values = even(LIST_MARK, f"joy{LIST_MARK}fear", f"{LIST_MARK}joy")
    with pytest.raises(UsageError, match="holds lists of labels; that is --kind labels"):
        guess_kind(values, "moods", kind=kind)
