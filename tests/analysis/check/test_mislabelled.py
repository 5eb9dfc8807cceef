"""Rows with wrong labels are found, and rows that cannot be judged are not."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from plait.analysis.check import check_recipe
from plait.analysis.check.mislabelled import (
    NUM_FOLDS,
    Labelled,
    _judge_scores,
    find_suspects,
    make_folds,
)


def test_suspects_by_hand():
    labels = np.array([0, 0, 0, 1, 1, 1])
    probabilities = np.array(
        [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.45, 0.55], [0.97, 0.03]]
    )
    rows, likely = find_suspects(labels, probabilities, np.array([0.6, 0.46]))
    # rows 2 and 5 are contradicted, 5 with more confidence; the others are as labelled
    assert rows.tolist() == [5, 2]
    assert likely.tolist() == [0, 1]


def test_equal_rows_are_in_one_fold():
    prints = np.random.default_rng(0).integers(0, 30, 200).astype(np.uint64)
    folds = make_folds(prints)
    assert {len(set(folds[prints == p])) for p in np.unique(prints)} == {1}
    assert set(folds) == set(range(NUM_FOLDS))
    assert make_folds(prints * 0) is None


THINGS = ("film", "book", "song", "meal", "walk", "room", "game", "story", "train", "garden")
WORDS = {"good": ("fine", "great", "lovely", "superb"), "bad": ("awful", "dull", "poor", "sad")}
WRONG = (3, 17, 45, 71)
HEADER = "id,text,label,author"


def moods() -> list[str]:
    """Eighty rows of two moods, four of them with the wrong label, each by its own author."""
    rows = [
        [f"the {t} was {w} .", mood, f"{w} {t}"]
        for mood, own in WORDS.items()
        for w in own
        for t in THINGS
    ]
    for row in WRONG:
        rows[row][1] = "bad" if rows[row][1] == "good" else "good"
    return [f"{i},{','.join(row)}" for i, row in enumerate(rows)]


def odd(count: int = 10) -> list[str]:
    """Rows of another label, all by one author."""
    return [f"{80 + i},of a {THINGS[i]} ?,odd,one" for i in range(count)]


def told(config) -> list:
    """Return the findings about labels."""
    findings = check_recipe(config, mislabelled=True).findings
    return [f for f in findings if f.check == "mislabelled"]


DEV = "id,text,label\n1,the film was superb .,good\n2,the walk was awful .,good\n"


def test_swapped_labels_are_found(write_recipe):
    train, dev = told(write_recipe("\n".join([HEADER, *moods()]), DEV))
    lines = {place.line - 2 for place in train.places}
    assert len(lines & {*WRONG}) >= 2
    assert len(lines - {*WRONG}) <= 1
    assert train.places[0].detail.startswith("labelled ")
    assert [place.line for place in dev.places] == [3]


def test_unusual_errors_of_scores():
    """Two of forty scores are far from what a good regression answers."""
    answers = np.linspace(0, 5, 40)
    labels = answers + 0.1 * np.cos(np.arange(40))
    labels[[7, 30]] = 5, 0
    rows = SimpleNamespace(
        config=SimpleNamespace(range=(0, 5)),
        finding=lambda *told: told,
    )
    (finding,) = _judge_scores([Labelled(rows, np.arange(40), labels, answers)])
    _, _, sentence, _, found, details = finding
    assert sentence.startswith("2 of 40 labels look wrong (out-of-fold regression")
    assert sorted(found) == [7, 30]
    assert details[0] == "scored 5, predicted 0.9"
    (finding,) = _judge_scores([Labelled(rows, np.arange(40), -labels, answers)])
    assert "do not predict them" in finding[2]


def by_authors(name: str = "by {thing}") -> str:
    """Eighty rows by ten authors, who each write of one thing in one mood."""
    mood = dict(zip(THINGS, ["good", "bad", "bad", "good", "bad"] * 2, strict=True))
    rows = [f"{i},{t} {i},{mood[t]},{name.format(thing=t)}" for i, t in enumerate(THINGS * 8)]
    return "\n".join([HEADER, *rows])


RANDOM = [f"{i},the {THINGS[i % 10]} {i} .,{('good', 'bad')[k]},{i}"
          for i, k in enumerate(np.random.default_rng(0).integers(0, 2, 60))]  # fmt: skip
LOST = "group puts all rows of a label into one fold"
UNKNOWN = "labels are not checked: frozen vectors do not predict them"
THREE = {"labels": ["bad", "good", "odd"]}


@pytest.mark.parametrize(
    ("rows", "task", "sentence"),
    [
        ("\n".join([HEADER, *RANDOM]), {}, UNKNOWN),
        # What an author writes of tells the label of all their rows, and of nobody else's.
        (by_authors(), {"group": "author"}, UNKNOWN),
        (by_authors(), {"train": [{"path": "train.csv", "group": "author"}]}, UNKNOWN),
        (by_authors("the same"), {"group": "author"}, "because all rows belong to one group"),
        (by_authors(), {"group": "label"}, "frozen vectors do not|(bad, good)"),
        ("\n".join([HEADER, *moods(), *odd()]), {"group": "author", **THREE}, f"{LOST} (odd)"),
    ],
)
def test_labels_that_cannot_be_judged(write_recipe, rows, task, sentence):
    findings = told(write_recipe(rows, None, **task))
    assert any(part in findings[0].sentence for part in sentence.split("|"))


def test_a_label_of_one_group_is_not_suspected(write_recipe):
    dev = "id,text,label\n1,the film was superb .,odd\n2,the walk was awful .,good\n"
    config = write_recipe("\n".join([HEADER, *moods(), *odd()]), dev, group="author", **THREE)
    _, train, held = told(config)
    assert all(place.line <= 81 for place in train.places)
    assert [place.line for place in held.places] == [3]


def test_a_label_of_one_row_is_not_the_groups_fault(write_recipe):
    config = write_recipe("\n".join([HEADER, *moods(), *odd(1)]), None, group="author", **THREE)
    assert not any(LOST in finding.sentence for finding in told(config))


def test_rows_are_checked_without_a_group_column_that_is_missing(write_recipe):
    """Training without folds does not need it, so nothing says that it would stop."""
    recipe = write_recipe(by_authors(), None, group="auther")
    report = check_recipe(recipe, mislabelled=True)
    (warning,) = [f for f in report.findings if f.check == "files" and f.split == "train"]
    assert warning.level == "warning"
    assert "there is no column 'auther'" in warning.sentence
    assert report.splits[0].num_rows == 80
    folds = recipe.model_copy(update={"data": recipe.data.model_copy(update={"folds": 2})})
    assert check_recipe(folds, mislabelled=True).stops
