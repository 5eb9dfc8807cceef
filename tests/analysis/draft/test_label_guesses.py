"""Counts of labels become kinds of tasks, which plait's own reader of labels agrees with."""

from __future__ import annotations

import pytest

from plait.analysis.draft.labels import LabelGuess, guess_kind
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


def test_few_values_among_numbers_that_are_none():
    guess = guess_kind({"0": 50, "1": 49, "unsure": 1}, "y")
    assert (guess.kind, guess.strays) == ("binary", ("unsure",))
    assert guess_kind({"0": 5, "1": 5, "unsure": 5}, "y").labels == ("0", "1", "unsure")


def test_what_is_no_label():
    with pytest.raises(UsageError, match="20 different values in 20 rows"):
        guess_kind({f"text {i}": 1 for i in range(20)}, "y")
    with pytest.raises(UsageError, match="is empty"):
        guess_kind({"": 4}, "y")


def test_several_labels_are_recognised():
    values = even("joy|fear", "joy", "fear|anger", "anger|joy")
    assert guess_kind(values, "emotions", kind="classes").kind == "classes"
    guess = guess_kind(values, "emotions")
    assert guess == LabelGuess("labels", guess.why, ("anger", "fear", "joy"), separator="|")
    assert guess_kind(even("a,b", "c"), "y").kind == "classes"
    assert guess_kind(even("a,b", "c"), "y", kind="labels").labels == ("a", "b", "c")
    with pytest.raises(UsageError, match="has one label a row"):
        guess_kind(even("a", "b"), "y", kind="labels")


@pytest.mark.parametrize("kind", ["classes", "binary", "score"])
def test_lists_are_labels(kind):
    values = even(LIST_MARK, f"joy{LIST_MARK}fear", f"{LIST_MARK}joy")
    with pytest.raises(UsageError, match="holds lists of labels; that is --kind labels"):
        guess_kind(values, "moods", kind=kind)


@pytest.mark.parametrize("kind", [None, "labels"])
@pytest.mark.parametrize("listed", ["['joy', 'fear']", '["joy", "fear"]', "[1, 2]"])
def test_lists_written_as_text_are_no_labels(kind, listed):
    values = even("[]", listed, "['joy']", "['fear', 'rage']", "['fear']", "['rage']")
    with pytest.raises(UsageError, match=r"has lists written as text, such as .* as JSON lines"):
        guess_kind(values, "moods", kind=kind)
    assert guess_kind(values, "moods", kind="classes").kind == "classes"
    assert guess_kind(even("[spam]", "[ham]"), "y").kind == "classes"


@pytest.mark.parametrize("kind", [None, "score"])
def test_numbers_with_a_comma_are_no_labels(kind):
    values = even("3,7", "4", "0,5", "2,9")
    with pytest.raises(UsageError, match=r"'3,7'; write '3\.7', or say --kind labels"):
        guess_kind(values, "score", kind=kind)
    assert guess_kind(values, "score", kind="labels").separator == ","
    assert guess_kind(even("1", "2", "3", "1,2", "2,3"), "aspects").kind == "labels"


def test_a_list_is_told_by_its_mark_and_written_with_a_sign_that_no_label_has():
    guess = guess_kind(even("joy|glee\x1ffear", "fear"), "emotions")
    assert guess == LabelGuess("labels", guess.why, ("fear", "joy|glee"), separator=";")
