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


def test_a_task_that_has_no_part_counts_as_well(read, tmp_path):
    """As if it were one of the run's: files of its dev and test, folds of its train."""
    for data in ({"drop_overlap": True}, {"drop_overlap": True, "folds": 3}):
        tables = (
            {"tasks": TASKS},
            {"tasks": {"one": TASKS["one"]}, "held_out": {"two": TASKS["two"]}},
        )
        with_two, held = (
            find_held_out(validate(RunConfig, {"name": "x", "data": data, **t}, "x"), tmp_path)
            for t in tables
        )
        assert (held.texts == with_two.texts).all()
        assert (held.pairs == with_two.pairs).all()
        assert held.files == with_two.files
        assert len(held.pairs) >= 3


def test_rows_read_without_labels_stay(read):
    """Who asks for answers wants one for every row."""
    assert len(texts(read("one", True, labelled=False))) == 6
    assert len(texts(read("two", "texts", labelled=False))) == 3


def test_the_report_tells(read):
    assert [str(report) for report in read("one", True).reports] == [
        "one-train.csv: 3 rows, 2 left out, which dev or test has",
        "one-more.csv: 3 rows, 1 left out, which dev or test has",
    ]


@pytest.mark.parametrize(
    ("pattern", "caught"),
    [("one-*.csv", "one-dev.csv"), ("*-[!d]*.csv", "one-test.csv"), ("links", "links/dev.csv")],
)
def test_a_pattern_that_takes_in_dev_or_test_is_refused(read, tmp_path, pattern, caught):
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "dev.csv").symlink_to(tmp_path / "two-dev.csv")  # of another task
    with pytest.raises(RecipeError, match=rf"takes in {caught}, which is a dev or test file"):
        read("one", True, train=pattern)
    assert len(texts(read("one", train="one-[tm][ro]*.csv"))) == 6
    assert texts(read("one", train="one-dev.csv")) == ["a good film!"]  # by name, it is meant


def test_a_pattern_may_take_in_the_files_that_a_fold_is_of(read):
    """The rows of the fold are held out, not the files, which are for training."""
    rows = texts(read("one", folds=2, train="one-[tm][ro]*.csv"))
    assert rows
    assert set(rows) < set(texts(read("one", train="one-[tm][ro]*.csv")))


def test_pairs_count_as_pairs_in_either_order(read):
    """Texts of a dev pair may be there in other pairs, and in those of one text."""
    assert texts(read("two")) == [("x", "y"), ("y", "z"), ("new", "text")]
    assert texts(read("two", True)) == [("y", "z"), ("new", "text")]


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


def test_either_text_of_a_pair_is_enough(read, tmp_path):
    """A first text and a second one that are held out, each beside one that is not."""
    (tmp_path / "mixed.csv").write_text("a,b,y\nx,q,1\nq,Z.,0\nq,r,1\n", encoding="utf-8")
    assert texts(read("two", "texts", train="mixed.csv")) == [("q", "r")]
    assert len(texts(read("two", True, train="mixed.csv"))) == 3


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


@pytest.mark.parametrize(("how", "left"), [(False, 2), (True, 2), ("added", 2), ("texts", 1)])
def test_rows_without_labels_are_left_out_whatever_is_said(read, tmp_path, how, left):
    read("two")  # writes the files
    settings = {**TASKS["two"], "unlabelled": "two-train.csv"}
    table = {"name": "x", "tasks": {**TASKS, "two": settings}, "data": {"drop_overlap": how}}
    config = validate(RunConfig, table, "x")
    split = Split(
        *("two", config.tasks["two"], "unlabelled", tmp_path, "error", 1, False),
        drop_overlap=how,
        held_out=find_held_out(config, tmp_path),
    )
    assert len(texts(split)) == left


def test_a_task_and_a_file_say_otherwise(read):
    assert len(texts(read("one", False, drop_overlap=True))) == 3
    assert len(texts(read("one", True, drop_overlap=False))) == 6
    files = ["one-train.csv", {"path": "one-more.csv", "drop_overlap": False}]
    split = read("one", True, train=files)
    assert [report.held_out for report in split.reports] == [2, 0]


def test_added_rows_are_looked_at_too(read):
    table = {"name": "gender-swap", "pairs": [["fresh", "good"], ["text", "film"]]}
    train = {"train": "one-train.csv", "augment": table}
    split = read("one", False, **train)
    assert "good film" in texts(split)
    for drop in ("added", True):
        split = read("one", drop, **train)
        assert "good film" not in texts(split)


def test_the_closure_never_makes_a_held_out_pair(read):
    """x is y and y is z, but the pair of x and z is in the test file."""
    split = read("two", augment="closure")
    assert len(texts(split)) == 3
    assert split.extensions[0].counts["left out, which dev or test has"] == 1
    assert str(split.extensions[0]) == (
        "0 more by closure (1 groups, 1 left out, which dev or test has)"
    )


def test_rows_that_are_made_have_ids_and_places(read, tmp_path):
    (tmp_path / "two-test.csv").write_text("a,b\nz,q\n", encoding="utf-8")
    split = read("two", augment=["closure", "other-order"])
    ids = [i for rows in split.rows() for i in rows.ids.to_pylist()]
    assert ids == [*"012", *(f"{i}~other-order" for i in range(3)), ids[-1]]
    assert ids[-1] in ("0~closure-1", "1~closure-1")
    assert str(split.places([6])[0]).endswith("two-train.csv, line " + str(int(ids[-1][0]) + 2))


def test_the_cache_key_knows_of_what_is_held_out(read, tmp_path):
    plain, dropping, closing = (
        read("two"),
        read("two", True),
        read("two", augment="closure"),
    )
    keys = [json.dumps(s.describe(), sort_keys=True) for s in (plain, dropping, closing)]
    assert len(set(keys)) == 3
    (tmp_path / "one-test.csv").write_text("text\nanother\n", encoding="utf-8")
    again = [read("two"), read("two", True), read("two", augment="closure")]
    others = [json.dumps(s.describe(), sort_keys=True) for s in again]
    assert others[0] == keys[0]
    assert not set(others[1:]) & set(keys)


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


def test_a_constant_label(read):
    file = {"path": "one-test.csv", "constant": 1}
    assert labels(read("one", train=["one-train.csv", file])) == [1, 0, 1, 1]
    word = {"path": "one-test.csv", "constant": "no"}
    assert labels(read("one", train=word)) == [0]
    several = {"kind": "labels", "labels": ["a", "b", "c"]}
    both = {"path": "one-test.csv", "constant": "a;c"}
    assert labels(read("one", **several, train=both)) == [[1, 0, 1]]


def test_a_constant_that_is_no_label(read):
    told = "tasks.one: one-test.csv: constant = 7.0: label '7' is not 0 or 1"
    with pytest.raises(RecipeError, match=told):
        read("one", train={"path": "one-test.csv", "constant": 7})


def test_a_scale_is_stretched(read, tmp_path):
    score = {"kind": "score", "range": (0.0, 5.0)}
    (tmp_path / "s.csv").write_text("text,y\na,1\nb,3\nc,5\nd,1.8\n", encoding="utf-8")
    file = {"path": "s.csv", "scale": (1, 5)}
    assert labels(read("one", **score, train=file)) == pytest.approx([0, 2.5, 5, 1])
    (tmp_path / "s.csv").write_text("text,y\na,0.5\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"'0.5' is outside the scale 1 to 5"):
        read("one", **score, train=file, bad_rows="error")


@pytest.mark.parametrize(
    ("file", "told"),
    [
        ({"constant": 1, "label": "y"}, "give constant or label, not both"),
        ({"constant": 1, "scale": (1, 5)}, "give constant or scale, not both"),
        ({"scale": (5, 1)}, "nothing between"),
        ({"scale": (1, 5)}, "has a scale, which is for kind = 'score'"),
        ({"drop_overlap": "added"}, "drop_overlap"),
    ],
)
def test_settings_that_make_no_sense(read, file, told):
    with pytest.raises(RecipeError, match=told):
        read("one", train={"path": "one-test.csv", **file})


def test_keys_of_files_without_the_new_settings_stay(read):
    for file in read("one").describe()["files"]:
        assert not {"constant", "scale", "drop_overlap"} & file.keys()


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


KEEPING = {
    "nothing": ([], True),
    "rows": (["data.drop_overlap=true"], False),
    "rows of one task": (["tasks.mood.drop_overlap='added'"], False),
    "pairs": (["tasks.same.augment=['closure']"], False),
    "texts": (["stages=['w', 'finetune']", "stage.w.kind='mlm'"], False),
}


@pytest.mark.parametrize("what", KEEPING)
def test_held_out_without_effect_is_told(tiny_recipe, tmp_path, what):
    from plait.config import read_recipe
    from plait.training.listeners import Listener
    from plait.training.run import train

    notes: list[str] = []

    class Spy(Listener):
        def note(self, text: str) -> None:
            notes.append(text)

    overrides, is_told = KEEPING[what]
    later = "held_out.later={kind='score', range=[0, 5], text=['a', 'b'], test='near-dev.csv'}"
    config = read_recipe(tiny_recipe(), [later, "train.max_steps=1", *overrides])
    train(config, tmp_path / "run", listeners=[Spy()])
    told = [note for note in notes if note.startswith("[held_out.later] has no effect: nothing")]
    assert bool(told) == is_told
