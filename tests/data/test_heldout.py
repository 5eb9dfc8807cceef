"""What dev and test have stays out of training: rows, pairs, texts, folds; counts by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait.config import RunConfig
from plait.config.checking import validate
from plait.data import Dataset, find_held_out
from plait.data.split import Split
from plait.errors import DataError, RecipeError, counted
from plait.inference.card import make_card
from plait.training.holding import find_missing
from plait.training.plan import Plan

FILES = {
    "one-train.csv": "text,y\nGood film.,1\nfresh text,0\nhalf of a pair,1\n",
    "one-more.csv": "text,y\na  GOOD film,1\nnew text,0\nunseen,1\n",
    "one-dev.csv": "text,y\na good film!,1\nbad row,\n",
    "one-test.csv": "text\nGood film\n",
    "two-train.csv": "a,b,y\nx,y,1\ny,z,1\nnew,text,0\n",
    "two-dev.csv": "a,b,y\nhalf of a pair,X,0\nY.,x,1\n",
    "two-test.csv": "a,b\nz,x\n",
}
TASKS = {
    "one": {
        "kind": "binary",
        "text": "text",
        "label": "y",
        "bad_rows": "skip",
        "train": ["one-train.csv", "one-more.csv"],
        "dev": "one-dev.csv",
        "test": "one-test.csv",
    },
    "two": {
        "kind": "binary",
        "text": ["a", "b"],
        "label": "y",
        "train": "two-train.csv",
        "dev": "two-dev.csv",
        "test": "two-test.csv",
    },
}

Read = Callable[..., Split]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Read a task's training rows; keywords go over the settings of [data] and of the task."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    def run(
        task: str,
        drop: Any = False,
        folds: int | None = None,
        labelled: bool = True,
        **settings: Any,
    ) -> Split:
        tasks = {**TASKS, task: {**TASKS[task], **settings}}
        data = {"drop_overlap": drop, "folds": folds}
        config = validate(RunConfig, {"name": "x", "tasks": tasks, "data": data}, "x")
        split = Split(
            task,
            config.tasks[task],
            "train",
            tmp_path,
            "error",
            1,
            labelled=labelled,
            fold=(1, folds) if folds else None,
            drop_overlap=drop,
            held_out=find_held_out(config, tmp_path),
        )
        list(split.rows())
        return split

    return run


def texts(split: Split) -> list[Any]:
    rows = [zip(*(c.to_pylist() for c in r.texts), strict=True) for r in split.rows()]
    return [row[0] if len(row) == 1 else row for some in rows for row in some]


@pytest.mark.parametrize(
    ("drop", "kept", "counts"),
    [
        (False, ["Good film.", "fresh text", "half of a pair", "a  GOOD film"], [0, 0]),
        ("added", ["Good film.", "fresh text", "half of a pair"], [0, 1]),
        (True, ["fresh text"], [2, 1]),
    ],
)
def test_rows_of_one_text(read, drop, kept, counts):
    """A text of any column of any task counts, however it is spelled."""
    split = read("one", drop)
    assert texts(split) == [*kept, "new text", "unseen"]
    assert [report.held_out for report in split.reports] == counts


@pytest.mark.parametrize(
    ("pattern", "caught"),
    [("one-*.csv", "one-dev.csv"), ("*-[!d]*.csv", "one-test.csv"), ("links", "links/dev.csv")],
)
def test_a_pattern_that_takes_in_dev_or_test_is_refused(read, tmp_path, pattern, caught):
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "dev.csv").symlink_to(tmp_path / "two-dev.csv")  # of another task
    with pytest.raises(RecipeError, match=rf"matches {caught}, which is a dev or test file"):
        read("one", True, train=pattern)
    assert len(texts(read("one", train="one-[tm][ro]*.csv"))) == 6
    assert texts(read("one", train="one-dev.csv")) == ["a good film!"]  # by name, it is meant


def test_a_text_of_a_pair_may_be_enough(read):
    """y stands in a dev pair, z in a test pair; neither does so beside the other."""
    assert texts(read("two", "texts")) == [("new", "text")]
    assert texts(read("one", "texts")) == texts(read("one", True))
    file = {"path": "two-train.csv", "drop_overlap": "texts"}
    assert texts(read("two", train=file)) == [("new", "text")]
    assert texts(read("two", True, train=file)) == [("new", "text")]
    more = read("two", "texts", augment="other-order")
    assert texts(more) == [("new", "text"), ("text", "new")]
    names = [json.dumps(read("two", how).describe()) for how in (False, True, "texts")]
    assert len(set(names)) == 3


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_each_text_is_told_apart_for_those_who_learn_from_bare_texts(
    read, tmp_path, tokenizer, monkeypatch, chunk
):
    """As many rows as there are, however few are read at a time."""
    monkeypatch.setattr("plait.data.fingerprints.CHUNK", chunk)
    read("one")  # writes the files
    held_out = find_held_out(validate(RunConfig, {"name": "x", "tasks": TASKS}, "x"), tmp_path)
    pairs = Dataset.from_texts([("x", "q"), ("q", "r"), ("q", "Z."), ("y", "z")], tokenizer, 16)
    expected = [[True, False], [False, False], [False, True], [True, True]]
    assert held_out.has_texts(pairs).tolist() == expected
    alone = Dataset.from_texts([("q",), ("Good film",)], tokenizer, 16)
    assert held_out.has_texts(alone).tolist() == [[False], [True]]


def test_the_fold_counts_as_dev(read, tmp_path):
    """What another task's fold holds out is not trained on here."""
    rows = [f"text {i},{i % 2}" for i in range(20)]
    for name in ("one-train.csv", "one-more.csv"):
        (tmp_path / name).write_text("\n".join(["text,y", *rows]), encoding="utf-8")
    other = {**TASKS["one"], "train": "one-more.csv", "dev": [], "test": []}
    tasks = {"one": {**other, "train": "one-train.csv"}, "other": other}
    data = {"folds": 2, "drop_overlap": True}
    config = validate(RunConfig, {"name": "x", "tasks": tasks, "data": data}, "x")
    held_out = find_held_out(config, tmp_path)
    for task in tasks:
        given = (task, config.tasks[task])
        dev = Split(*given, "dev", tmp_path, "error", config.seed, True, "", (1, 2))
        train = Split(
            *given, "train", tmp_path, "error", config.seed, True, "", (1, 2), True, held_out
        )
        assert set(texts(dev)) | set(texts(train)) == {row.split(",")[0] for row in rows}
        assert not set(texts(dev)) & set(texts(train))
    assert len(held_out.texts) == len(texts(dev))


def test_files_that_are_not_there_are_named(read, tmp_path):
    read("one")
    (tmp_path / "two-test.csv").unlink()
    for drop, missing in ((True, ("two-test.csv",)), (False, ())):
        table = {"name": "x", "tasks": TASKS, "data": {"drop_overlap": drop}}
        assert find_missing(Plan.build(validate(RunConfig, table, "x")), str(tmp_path)) == missing


# --- labels of files --------------------------------------------------------------------


def labels(split: Split) -> list[Any]:
    return [label for rows in split.rows() for label in rows.labels.tolist()]


def test_a_scale_is_stretched(read, tmp_path):
    score = {"kind": "score", "range": (0.0, 5.0)}
    (tmp_path / "s.csv").write_text("text,y\na,1\nb,3\nc,5\nd,1.8\n", encoding="utf-8")
    file = {"path": "s.csv", "scale": (1, 5)}
    assert labels(read("one", **score, train=file)) == pytest.approx([0, 2.5, 5, 1])
    (tmp_path / "s.csv").write_text("text,y\na,0.5\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"'0.5' is outside the scale 1 to 5"):
        read("one", **score, train=file, bad_rows="error")


# --- in a run ---------------------------------------------------------------------------


def test_a_run_tells(tiny_recipe, tmp_path):
    from plait.config import read_recipe
    from plait.training.listeners import Listener
    from plait.training.run import train

    recipe = tiny_recipe()
    row = (recipe.parent / "mood-train.csv").read_text(encoding="utf-8").splitlines()[1]
    with (recipe.parent / "mood-dev.csv").open("a", encoding="utf-8") as file:
        file.write(row + "\n")
    notes: list[str] = []

    class Spy(Listener):
        def note(self, text: str) -> None:
            notes.append(text)

    settings = ["data.drop_overlap=true", "stages=['w', 'finetune']", "stage.w.kind='mlm'"]
    config = read_recipe(recipe, [*settings, "train.max_steps=2"])
    folder = train(config, tmp_path / "run", listeners=[Spy()]).folder
    facts = json.loads((folder / "run.json").read_text())["data"]["train"]
    rows_out = facts["mood"]["held_out_rows"]
    assert rows_out >= 1
    assert any(f"{rows_out} left out, which dev or test has" in note for note in notes)
    assert not any("mood: train and dev share" in note for note in notes)
    card = make_card(folder)
    assert (
        f"mood: {counted(rows_out, 'training row')} left out, as dev or test has the same." in card
    )
    for name, told in facts.items():
        if texts_out := told.get("held_out_texts"):
            assert any(note.startswith(f"{name}: {texts_out} text") for note in notes)
            assert f"{name}: {counted(texts_out, 'pre-training text')} left out" in card
    assert any("held_out_texts" in told for told in facts.values())
