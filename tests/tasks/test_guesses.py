"""Label columns become kinds of tasks, and the kind's own reader reads them."""

from __future__ import annotations

import pytest

from plait.config import TaskConfig
from plait.tasks import LabelColumn, guess_kind
from plait.tasks.reading import LIST_MARK


def guess(values, name="y", chosen=None):
    """Return kind, labels and range of a column whose values are equally frequent."""
    counts = values if isinstance(values, dict) else dict.fromkeys(values.split(" "), 10)
    kind, found = guess_kind(LabelColumn(name, counts), chosen)
    return kind, found.settings.get("labels"), found.settings.get("range")


@pytest.mark.parametrize(
    ("values", "name", "expected"),
    [
        ("0 1", "label", ("binary", None, None)),
        ("0.0 1.0", "is_duplicate", ("binary", None, None)),
        ("-1 1", "polarity", ("binary", None, None)),
        ("false true", "spam", ("binary", None, None)),
        ("N Y", "spam", ("binary", ["N", "Y"], None)),
        ("positive Negative", "mood", ("binary", ["Negative", "positive"], None)),
        ("entailment not_entailment", "y", ("binary", ["not_entailment", "entailment"], None)),
        ("ham spam", "y", ("classes", ["ham", "spam"], None)),
        ("01 02 10", "code", ("classes", ["01", "02", "10"], None)),
        ("00 01", "code", ("classes", ["00", "01"], None)),
        ("0 1 2 3 4", "sentiment", ("classes", 5, None)),
        ("0 1 3", "sentiment", ("classes", 4, None)),
        ("1 2 3", "stars", ("classes", ["1", "2", "3"], None)),
        ("1 2 3 4 5", "similarity", ("score", None, [1, 5])),
        ("0.2 4.8 2.5", "label", ("score", None, [0, 5])),
        ("0.25 0.75 1", "label", ("score", None, [0, 1])),
        ("250.5 900.2", "price", ("score", None, [250, 901])),
        (" ".join(map(str, range(60))), "label", ("classes", 60, None)),
        (" ".join(map(str, range(60))), "age", ("score", None, [0, 100])),
        ({"Good": 10, "good": 3, "bad": 9}, "y", ("classes", ["bad", "Good"], None)),
        ({"0": 50, "1": 49, "unsure": 1}, "y", ("binary", None, None)),
        ("0 1 unsure", "y", ("classes", ["0", "1", "unsure"], None)),
        ("joy|fear joy fear|anger anger|joy", "y", ("labels", ["anger", "fear", "joy"], None)),
        (
            f"{LIST_MARK}joy|glee{LIST_MARK}fear {LIST_MARK}fear",
            "y",
            ("labels", ["fear", "joy|glee"], None),
        ),
        ("1 2 3 1,2 2,3", "aspects", ("labels", ["1", "2", "3"], None)),
        ("a,b c", "y", ("classes", ["a,b", "c"], None)),
        ("[spam] [ham]", "y", ("classes", ["[ham]", "[spam]"], None)),
    ],
)
def test_a_column_becomes_a_kind_that_reads_it(values, name, expected):
    assert guess(values, name) == expected
    counts = values if isinstance(values, dict) else dict.fromkeys(values.split(" "), 10)
    kind, found = guess_kind(LabelColumn(name, counts))
    task = TaskConfig(kind=kind, text=("t",), **found.settings)
    reader = task.build_reader(("y",), task.label_map)
    read = {str(reader.read(value)) for value in counts if value not in found.strays}
    assert len(read) > 1


@pytest.mark.parametrize(
    ("values", "chosen", "expected"),
    [
        ("1 2 3", "score", ("score", None, [1, 3])),
        ("0 1", "classes", ("classes", 2, None)),
        ("1 2", "binary", ("binary", None, None)),
        ("a b", "binary", ("binary", ["a", "b"], None)),
        ("a,b c", "labels", ("labels", ["a", "b", "c"], None)),
        ("joy|fear joy fear|joy", "classes", ("classes", ["fear|joy", "joy", "joy|fear"], None)),
        ("3,7 4 0,5 2,9", "labels", ("labels", ["0", "2", "3", "4", "5", "7", "9"], None)),
    ],
)  # fmt: skip
def test_a_chosen_kind(values, chosen, expected):
    assert guess(values, chosen=chosen) == expected


LISTS = "['joy','fear'] ['joy'] ['fear'] []"


@pytest.mark.parametrize(
    ("values", "chosen", "sentence"),
    [
        ("1 2 3", "binary", "has 3 different values; binary has two"),
        ("a b", "score", "holds words, such as 'a', not scores"),
        ("a b", "labels", "has one label a row"),
        (f"joy{LIST_MARK}fear {LIST_MARK}joy", "score", "lists of labels; that is --kind labels"),
        ({f"text {i}": 1 for i in range(20)}, None, "20 different values in 20 rows, too many"),
        (LISTS, None, "has lists written as text, such as \"['joy','fear']\"; write their labels"),
        (LISTS, "labels", "has lists written as text"),
        ("3,7 4 0,5 2,9", None, "such as '3,7'; write '3.7', or say --kind labels"),
        ("3,7 4 0,5 2,9", "score", "such as '3,7'; write '3.7', or say --kind labels"),
    ],
)
def test_columns_that_are_refused(values, chosen, sentence):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        guess(values, chosen=chosen)
    assert sentence in str(caught.value)


def test_separators_and_strays():
    column = LabelColumn("y", {"joy|fear": 5, "joy": 5, "fear|anger": 5, "anger|joy": 5})
    assert guess_kind(column)[1].settings["label_separator"] == "|"
    column = LabelColumn("y", {f"a|b{LIST_MARK}c": 5, "c": 5})
    assert guess_kind(column)[1].settings["label_separator"] == ";"  # no label has one
    assert guess_kind(LabelColumn("y", {"0": 50, "1": 49, "unsure": 1}))[1].strays == ("unsure",)
