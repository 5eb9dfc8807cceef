"""Files become recipes that plait reads, and guesses that a person would make."""

from __future__ import annotations

import csv
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from plait.analysis.draft import Reading, Request, draft_recipe
from plait.config import read_recipe
from plait.data.split import Split
from plait.errors import UsageError

MOODS = ("good", "bad", "so-so")
SENTENCES = [f"The {thing} number {i} was {MOODS[i % 3]} to see" for i, thing in
             enumerate(["film", "book", "walk", "meal"] * 15)]  # fmt: skip


def write(path: Path, rows: list[list[str]], separator: str = ",", encoding: str = "utf-8") -> Path:
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=separator).writerows(rows)
    return path


@pytest.fixture
def mood(tmp_path: Path) -> Path:
    rows = [[text, MOODS[i % 3]] for i, text in enumerate(SENTENCES)]
    return write(tmp_path / "mood.csv", [["text", "mood"], *rows])


def recipe_of(files: list[Path | str], folder: Path, request: Request | None = None):
    with draft_recipe(files, request or Request()) as draft:
        recipe = draft.write(folder)[0]
    return read_recipe(recipe)


def rows_of(config, task: str, split: str) -> list[tuple[str, str, float]]:
    """Read a split as training does."""
    reading = Split(task, config.tasks[task], split, Path(config.data.root), "error", 1, True)
    return [
        (*(text[i].as_py() for text in rows.texts), float(rows.labels[i]))
        for rows in reading.rows()
        for i in range(len(rows))
    ]


def test_one_file_becomes_train_and_dev(mood, tmp_path):
    config = recipe_of([mood], tmp_path / "mine")
    task = config.tasks["mood"]
    assert (task.kind.name, task.labels, task.text, task.label) == (
        ("classes", ("bad", "good", "so-so"), ("text",), "mood")
    )
    train, dev = rows_of(config, "mood", "train"), rows_of(config, "mood", "dev")
    assert (len(train), len(dev)) == (48, 12)
    assert {text for text, _ in train} | {text for text, _ in dev} == set(SENTENCES)
    assert [sum(label == i for _, label in dev) for i in range(3)] == [4, 4, 4]


def test_files_that_are_fine_are_left_where_they_are(tmp_path):
    rows = [[str(i), f"x{i}", text, str(i % 5)] for i, text in enumerate(SENTENCES)]
    for split in ("train", "dev"):
        header = ["", "id", "sentence", "sentiment"]
        write(tmp_path / f"mood-{split}.tsv", [header, *rows], "\t")
    write(
        tmp_path / "mood-test.tsv",
        [["0", "", "id", "sentence"], ["1", "0.0", "x0", "Well then"]],
        "\t",
    )
    config = recipe_of(sorted(tmp_path.glob("*.tsv")), tmp_path / "mine")
    task = config.tasks["mood"]
    assert (task.labels, task.id, task.text) == (tuple("01234"), "id", ("sentence",))
    assert [getattr(task, split)[0].path for split in ("train", "dev", "test")] == (
        ["mood-train.tsv", "mood-dev.tsv", "mood-test.tsv"]
    )
    assert not (tmp_path / "mine" / "data").exists()


def test_pairs_scores_and_missing_labels(tmp_path):
    rows = [[a, b, str(i % 6 - 0.5 * (i % 2))] for i, (a, b) in enumerate(pairwise(SENTENCES))]
    rows[7][2] = ""
    for split in ("train", "dev"):
        write(tmp_path / f"near-{split}.csv", [["sentence1", "sentence2", "similarity"], *rows])
    task = recipe_of(sorted(tmp_path.glob("*.csv")), tmp_path / "mine").tasks["near"]
    assert (task.kind.name, task.range, task.is_pair) == ("score", (0.0, 5.0), True)
    assert task.bad_rows == "skip"


def test_a_column_that_names_splits(tmp_path):
    splits = ["train", "train", "train", "validation", "test"] * 12
    rows = [
        [s, MOODS[i % 3], split] for i, (s, split) in enumerate(zip(SENTENCES, splits, strict=True))
    ]
    file = write(tmp_path / "mood.csv", [["text", "label", "split"], *rows])
    config = recipe_of([file], tmp_path / "mine")
    assert [len(rows_of(config, "mood", s)) for s in ("train", "dev", "test")] == [36, 12, 12]
    assert config.tasks["mood"].dev[0].where == {"split": ("validation",)}
    assert not (tmp_path / "mine" / "data").exists()  # the rows stay where they are


def split_file(path: Path, words: list[str], **changed: str) -> Path:
    """Write moods with a word for the split each; `changed` names labels by row."""
    rows = [
        [s, changed.get(f"row{i}", MOODS[i % 3]), word]
        for i, (s, word) in enumerate(zip(SENTENCES, words, strict=True))
    ]
    return write(path, [["text", "label", "split"], *rows])


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        (["train", "train", "", "dev", "test"], [36, 12, 12]),  # without a word: train
        (["train", "train", "train", "train", "test"], [39, 9, 12]),  # dev is drawn
    ],
)
def test_where_words_are_not_enough_rows_are_written_again(tmp_path, words, sizes):
    config = recipe_of([split_file(tmp_path / "mood.csv", words * 12)], tmp_path / "mine")
    assert [len(rows_of(config, "mood", s)) for s in ("train", "dev", "test")] == sizes
    assert config.tasks["mood"].train[0].where is None
    assert (tmp_path / "mine" / "data" / "mood-train.csv").is_file()


# --- what cannot be used -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "", "the file is empty"),
        ("a.csv", "text,label\0\nx,y\0\n", "no text file; a spreadsheet is first saved as CSV"),
        ("a.csv", "text,label\n", "no rows below the header"),
        (
            "a.csv",
            "text,label\nsome, words,x\nother, words,y\n",
            "none of 2 rows has as many columns as the first line, which names 2; take out what",
        ),
        ("a.jsonl", '[{"text": "a b c", "label": "x"}]\n', "a.jsonl: no line is a JSON object"),
        ("a.csv", "text,text,l\na b c,b,x\n", "column 'text' appears more than once"),
        (
            "a.jsonl",
            '{"doc": {"text": "a"}, "label": "x"}\n{"doc": {"text": "b"}, "label": "y"}\n',
            "no column looks like text .*column 'doc' holds objects, which are not read; give what",
        ),
        ("a.csv", "one,two\nsome words here,\nmore words here,\n", "no column looks like a label"),
        ("a.csv", "a,b\n1,2\n2,3\n", "no column looks like text"),
        (
            "a.csv",
            "text,label\nsome words here,x\nother words here,x\n",
            "every training row has the same",
        ),
        (
            "a.csv",
            "text,label,label\nsome words here,x,1\nother words here,y,2\n",
            "columns are 'text'; column 'label' appears more than once",
        ),
        ("a.csv", "sep=;\ntext;label\nsome words;x\n", "line 1: the line is for Excel alone"),
        ("a.json", "[]", "named .jsonl"),
        (
            "a-dev.csv",
            "text,label\nsome words here,x\nother words here,y\n",
            "is not for training by its name",
        ),
    ],
)
def test_one_sentence_for_every_problem(name, content, told, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=told):
        draft_recipe([tmp_path / name])


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (Request(tasks=["mood"]), "--task 'mood' is not of the form NAME=FILE"),
        (Request(splits=["all=x.csv"]), "a split is train, dev or test"),
        (Request(label=["mod=mood"]), "--label names task 'mod'; did you mean 'mood'"),
        (Request(label=["moood"]), "there is no column 'moood'; did you mean 'mood'"),
        (Request(label=["mood, text"]), "names 2 columns, each of .* 0 or 1 .* 'mood' has 'good'"),
        (Request(label=["mood, txt"]), "there is no column 'txt'; did you mean 'text'"),
        (Request(label=["mood,text"], kind=["classes"]), "names 2 columns, .* is --kind labels"),
        (Request(text=["a,b,c"]), "names 3 columns"),
        (Request(range=["0-5"]), "not of the form LOW,HIGH"),
        (Request(range=["0,5"]), "the kind of mood is classes; say --kind mood=score, or"),
        (Request(dev_fraction=1.5), "not between 0 and 1"),
        (Request(reading=Reading(encoding="utf-9")), "no encoding 'utf-9'"),
    ],
)
def test_wrong_wishes(request_, told, mood):
    with pytest.raises(UsageError, match=told):
        draft_recipe([mood], request_)


# --- a column of 0 and 1 for each label --------------------------------------------------

FEELINGS = ("joy", "anger", "fear")


def feelings(path: Path, *more: tuple[str, list[str]], names: tuple[str, ...] = FEELINGS) -> Path:
    """Write sentences with three columns of 0 and 1, and others before them."""
    flags = [[str(int(i % (k + 2) == 0)) for k in range(3)] for i in range(len(SENTENCES))]
    rows = [
        [*(values[i] for _, values in more), text, *flags[i]] for i, text in enumerate(SENTENCES)
    ]
    return write(path, [[*(name for name, _ in more), "text", *names], *rows])


def test_columns_of_0_and_1_are_labels_of_one_task(tmp_path):
    ids = [f"r{i}" for i in range(len(SENTENCES))]
    path = feelings(tmp_path / "felt.csv", ("id", ids))
    config = recipe_of([path], tmp_path / "mine")
    task = config.tasks["felt"]
    assert (task.kind.name, task.label, task.labels, task.id) == (
        "labels",
        FEELINGS,
        FEELINGS,
        "id",
    )
    text = (tmp_path / "mine" / "recipe.toml").read_text()
    assert "# Note: it is guessed that these columns of 0 and 1 are labels of one task" in text
    assert '"joy",  # 30 rows' in text
    found = {}
    for split in ("train", "dev"):
        reading = Split("felt", task, split, Path(config.data.root), "error", 1, True)
        for rows in reading.rows():
            found |= dict(zip(rows.texts[0].to_pylist(), rows.labels.tolist(), strict=True))
    assert found == {
        text: [float(i % (k + 2) == 0) for k in range(3)] for i, text in enumerate(SENTENCES)
    }


def test_nothing_is_overwritten_unasked(mood, tmp_path):
    folder = tmp_path / "mine"
    with draft_recipe([mood]) as draft:
        draft.write(folder)
        before = (folder / "recipe.toml").read_text()
        with pytest.raises(UsageError, match="exists already and is not overwritten"):
            draft.write(folder)
        draft.write(folder, overwrite=True)
    assert (folder / "recipe.toml").read_text() == before
    own = [folder / "data" / f"mood-{split}.csv" for split in ("train", "dev")]
    own[1].unlink()
    with draft_recipe(own[:1]) as draft, pytest.raises(UsageError, match="among the files given"):
        draft.write(folder, overwrite=True)


# --- the Hub -----------------------------------------------------------------------------


class FakeSplit:
    """What plait asks of a split of `datasets`."""

    def __init__(self, columns: dict[str, list], features: dict):
        self.columns, self.features = columns, features
        self.column_names = list(columns)

    def __getitem__(self, name: str) -> list:
        return self.columns[name]


def test_a_data_set_of_the_hub(tmp_path, monkeypatch):
    label = SimpleNamespace(names=["negative", "positive"])
    features = {"text": object(), "label": label, "image": object()}

    def load_dataset(name: str, config: str | None) -> dict[str, FakeSplit]:
        assert (name, config) == ("owner/mood", "small")
        columns = {"text": SENTENCES, "label": [i % 2 for i in range(60)], "image": [b""] * 60}
        hidden = columns | {"label": [-1] * 60}
        return {"train": FakeSplit(columns, features), "validation": FakeSplit(columns, features),
                "test": FakeSplit(hidden, features)}  # fmt: skip

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    config = recipe_of(["hf:owner/mood:small"], tmp_path / "mine")
    task = config.tasks["mood-small"]
    assert (task.kind.name, task.labels) == ("binary", ("negative", "positive"))
    assert len(rows_of(config, "mood-small", "dev")) == 60
    header = (tmp_path / "mine" / "data" / "mood-small-test.csv").read_text().splitlines()[0]
    assert header == "text"
