"""Files become recipes that plait reads, with guesses that a person would make."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet
import pytest

from plait.analysis.draft import Request, draft_recipe
from plait.analysis.draft.columns import read_split_word
from plait.analysis.draft.names import read_name
from plait.config import read_recipe
from plait.data.split import Split
from plait.errors import UsageError

MOODS = ("good", "bad", "so-so")
NUM = 60
SENTENCES = [f"The {thing} number {i} was {MOODS[i % 3]} to see" for i, thing in
             enumerate(["film", "book", "walk", "meal"] * 15)]  # fmt: skip
MOOD = [MOODS[i % 3] for i in range(NUM)]


def write(path: Path, columns: dict[str, list], separator: str = ",", encoding="utf-8") -> Path:
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerows([columns, *zip(*columns.values(), strict=True)])
    return path


@pytest.fixture
def mood(tmp_path: Path) -> Path:
    return write(tmp_path / "mood.csv", {"text": SENTENCES, "mood": MOOD})


def recipe_of(files, folder: Path, **request):
    with draft_recipe(files, Request(**request)) as draft:
        recipe = draft.write(folder)[0]
    return read_recipe(recipe)


def draft_task(files, **request):
    with draft_recipe(files, Request(**request)) as draft:
        (task,) = draft.tasks
    return task


def rows_of(config, task: str, split: str) -> list[tuple]:
    """Read a split as training does."""
    spec = config.tasks[task]
    reading = Split(task, spec, split, Path(config.data.root), spec.bad_rows or "error", 1, True)
    return [
        (*texts, label)
        for rows in reading.rows()
        for *texts, label in zip(
            *(column.to_pylist() for column in rows.texts), rows.labels.tolist(), strict=True
        )
    ]


# --- splits ------------------------------------------------------------------------------


def test_one_file_becomes_train_and_dev(mood, tmp_path):
    config = recipe_of([mood], tmp_path / "mine")
    task = config.tasks["mood"]
    assert (task.kind.name, task.labels) == ("classes", ("bad", "good", "so-so"))
    assert (task.text, task.label, task.dev_fraction) == (("text",), "mood", 0.2)
    train, dev = rows_of(config, "mood", "train"), rows_of(config, "mood", "dev")
    assert len(train) + len(dev) == NUM
    assert 6 <= len(dev) <= 18
    assert {text for text, _ in (*train, *dev)} == set(SENTENCES)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["recipe.toml"]


def test_files_by_split(tmp_path):
    columns = {"": range(NUM), "id": range(NUM), "sentence": SENTENCES, "stars": [1, 2, 3] * 20}
    for split in ("train", "dev"):
        write(tmp_path / f"mood-{split}.tsv", columns, "\t")
    write(tmp_path / "mood-test.tsv", {"": [0], "sentence": ["Well then"]}, "\t")
    task = recipe_of(sorted(tmp_path.glob("*.tsv")), tmp_path / "mine").tasks["mood"]
    assert (task.labels, task.id, task.text) == (("1", "2", "3"), "id", ("sentence",))
    paths = [getattr(task, split)[0].path for split in ("train", "dev", "test")]
    assert paths == ["mood-train.tsv", "mood-dev.tsv", "mood-test.tsv"]
    assert task.test[0].id == ""
    assert task.dev_fraction is None


@pytest.mark.parametrize(
    ("name", "words", "sizes"),
    [
        ("split", ["train", "train", "train", "validation", "test"], [36, 12, 12]),
        ("split", ["train", "training", "", "dev", "test"], [36, 12, 12]),
        ("Teil", ["Train", "train", "train", "dev", "test"], [36, 12, 12]),
        ("split", ["train", "train", "train", "train", "test"], [48, None, 12]),
    ],
)
def test_a_column_of_splits(tmp_path, name, words, sizes):
    file = write(tmp_path / "mood.csv", {"text": SENTENCES, "mood": MOOD, name: words * 12})
    config = recipe_of([file], tmp_path / "mine")
    found = [len(rows_of(config, "mood", split)) for split in ("train", "dev", "test")]
    if sizes[1] is None:  # dev is held out of train
        sizes = [sizes[0] - found[1], found[1], sizes[2]]
    assert found == sizes
    assert config.tasks["mood"].label == "mood"


def test_a_column_called_split_that_names_none(tmp_path):
    words = ["train", "train", "dev", "golden"] * 15
    file = write(tmp_path / "mood.csv", {"text": SENTENCES, "mood": MOOD, "split": words})
    notes = draft_task([file]).notes
    assert any("'split' is ignored, because 'golden' names no split" in note for note in notes)


@pytest.mark.parametrize(
    ("path", "task", "word"),
    [
        ("mood-train.csv", "mood", "train"),
        ("mood.dev.tsv", "mood", "dev"),
        ("mood_validation.jsonl.gz", "mood", "validation"),
        ("Mood Test.parquet", "Mood", "Test"),
        ("ids-sst-test-student.csv", "ids-sst", "test"),
        ("train-mood.csv", "mood", "train"),
        ("mood-train-00001-of-00003.parquet", "mood", "train"),
        ("topics/train.csv", "topics", "train"),
        ("data/train.csv", "task", "train"),
        ("sts12-16.tsv", "sts12-16", ""),
        ("mood-hold-out.csv", "mood", "holdout"),
        ("trains.csv", "trains", ""),
        ("größe!.csv", "gre", ""),
    ],
)
def test_names_of_files(path, task, word):
    assert read_name(Path(path)) == (task, word)


def test_words_for_splits():
    words = ("train", "Validation", "SICK_trial.txt", "holdout", "Held-Out", "tests2")
    assert [read_split_word(w) for w in words] == ["train", "dev", "dev", "test", "test", None]


# --- columns -----------------------------------------------------------------------------

ROWS = [str(i) for i in range(NUM)]
HALF = [str(i % 2) for i in range(NUM)]
SHOUTS = [text.upper() for text in SENTENCES]
NUMBERS = [f"{i % 11 / 2}" for i in range(NUM)]


@pytest.mark.parametrize(
    ("columns", "text", "label"),
    [
        ({"title": MOOD, "body": SENTENCES, "spam": HALF}, "title and body", "spam"),
        ({"a": SENTENCES, "b": SHOUTS, "priority": MOOD}, "a and b", "priority"),
        ({"question one": SENTENCES, "question two": SHOUTS, "same": HALF},
         "question one and question two", "same"),
        ({"Satz1": SENTENCES, "Satz2": SHOUTS, "Nähe": NUMBERS}, "Satz1 and Satz2", "Nähe"),
        ({"текст": SENTENCES, "метка": MOOD}, "текст", "метка"),
        ({"text": SENTENCES, "genre": ["news"] * NUM, "grade": NUMBERS}, "text", "grade"),
        ({"nr": ROWS, "texto": SENTENCES, "visto": [f"{i % 28 + 1}.3.2024" for i in range(NUM)],
          "sucio": MOOD}, "texto", "sucio"),
        ({"english": SENTENCES, "told": ["Ein Kind malt ein Bild.", "Der Hund."] * 30,
          "nähe": ["", *NUMBERS[1:]]}, "english", "nähe"),
        ({"文": [f"昨日の映画は{i}回目でした" for i in range(NUM)], "感情": MOOD}, "文", "感情"),
        ({"text": SENTENCES, "joy": HALF, "fear": HALF[::-1]}, "text", "joy, fear"),
        ({"text": SENTENCES, "label": HALF, "is_reply": HALF}, "text", "label"),
        ({"text": SENTENCES, "joy": HALF, "fold": HALF}, "text", "joy"),
        ({"text": SENTENCES, "joy": HALF, "anger": ["0", "1", "2"] * 20}, "text", "anger"),
        ({"text": SENTENCES, "joy": HALF, "mood": MOOD}, "text", "mood"),
    ],
)  # fmt: skip
def test_roles_of_columns(tmp_path, columns, text, label):
    guesses = draft_task([write(tmp_path / "a.csv", columns)]).guesses
    assert (guesses["text"].value, guesses["label"].value) == (text, label)


def test_columns_of_0_and_1_are_labels_of_one_task(tmp_path):
    columns = {"id": ROWS, "text": SENTENCES, "joy": HALF, "fear": HALF[::-1]}
    path = write(tmp_path / "felt.csv", columns)
    config = recipe_of([path], tmp_path / "mine")
    task = config.tasks["felt"]
    assert (task.kind.name, task.label, task.id) == ("labels", ("joy", "fear"), "id")
    assert rows_of(config, "felt", "dev")[0][1] in ([0, 1], [1, 0])
    text = (tmp_path / "mine" / "recipe.toml").read_text()
    assert "# Note: columns with only 0 and 1 are used as the labels of one" in text
    assert '"joy",  # 30 rows' in text
    assert draft_task([path], label=["fear"]).config.kind.name == "binary"
    assert draft_task([path], label=["fear, joy"]).config.label == ("fear", "joy")
    assert draft_task([path], kind=["binary"]).config.kind.name == "binary"


# --- files -------------------------------------------------------------------------------


def test_json_lines_and_parquet(tmp_path):
    lines = [{"title": "T", "body": s, "n": {"a": 1}, "spam": i % 2 == 0}
             for i, s in enumerate(SENTENCES)]  # fmt: skip
    del lines[0]["title"]  # the first object may lack a key
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    table = pa.table({"review": SENTENCES, "stars": [i % 5 + 1 for i in range(NUM)]})
    pyarrow.parquet.write_table(table, tmp_path / "b.parquet")
    config = recipe_of([tmp_path / "a.jsonl", tmp_path / "b.parquet"], tmp_path / "mine")
    assert (config.tasks["a"].kind.name, config.tasks["a"].label) == ("binary", "spam")
    assert config.tasks["b"].labels == tuple("12345")


@pytest.mark.parametrize("separator", [";", "|", "\t"])
def test_separators(tmp_path, separator):
    texts = [f'Hello, "you",\n\n{text}\n' for text in SENTENCES]
    path = write(tmp_path / "mail.csv", {"message": texts, "mood": MOOD}, separator)
    config = recipe_of([path], tmp_path / "mine")
    assert config.tasks["mail"].text == ("message",)
    assert len(rows_of(config, "mail", "train")) + len(rows_of(config, "mail", "dev")) == NUM


def test_quotes_that_enclose_nothing(tmp_path):
    lines = [f'he said "{s}\t{i % 2}' for i, s in enumerate(SENTENCES)]
    lines[3] = '"so he said\t1'
    (tmp_path / "q.tsv").write_text("\n".join(["text\tlabel", *lines]))
    config = recipe_of([tmp_path / "q.tsv"], tmp_path / "mine")
    assert config.tasks["q"].train[0].quoting is False


def test_bad_rows_are_noted_and_skipped(tmp_path):
    moods = [*MOOD[:30], "", *MOOD[31:]]
    path = write(tmp_path / "a.csv", {"text": SENTENCES, "mood": moods})
    task = draft_task([path])
    assert task.num_rows["train"] == NUM - 1
    told = "rows that cannot be used are skipped: 1 missing label; the first is in a.csv, line 32"
    assert told in task.notes
    assert recipe_of([path], tmp_path / "mine").tasks["a"].bad_rows == "skip"


TWO = "text,label\nsome words here,{}\nother words here,{}\n"


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.csv", "", "the file is empty"),
        ("a.csv", "text,label\n", "no rows below the header"),
        ("a.csv", "one,two\nsome words here,\nmore words here,\n", "no column looks like a label"),
        ("a.csv", "a,b\n1,2\n2,3\n", "no column looks like a text"),
        ("a.csv", TWO.format("x", "x"), "every training row has the same label"),
        ("a.csv", "sep=;\ntext;label\nsome words;x\n", "line 1: remove this line"),
        ("a.csv", "text,text,l\na b c,b,x\n", "column 'text' appears more than once"),
        ("a.csv", "text,label\nsome, words,x\nother, words,y\n",
         "none of 2 rows has as many columns as the header, which has 2; remove lines above"),
        ("a.csv", "A fine film it was,good\nA bad film it was,bad\nA film of good hope,good\n",
         "line 1 does not name the columns; add a header with names that suit: "
         "sed -i '1i column1,column2' "),
        ("a.csv", "text,label\ncafé noir,x\nthé vert,y\n".encode("latin-1"),
         "the file is not UTF-8; convert it: iconv -f WINDOWS-1252 -t UTF-8 "),
        ("a.csv", TWO.format("x", "y").encode("utf-16"), "iconv -f UTF-16 -t UTF-8 "),
        ("a.json", "[]", "a JSON file must have an object per line: jq -c '.[]' "),
        ("a.jsonl", '[{"text": "a b c", "label": "x"}]\n', "no line is a JSON object"),
        ("a.jsonl", '{"doc": {"text": "a"}, "label": "x"}\n{"doc": {"text": "b"}, "label": "y"}\n',
         "column 'doc' holds objects, which are not supported"),
        ("a-dev.csv", TWO.format("x", "y"), "says another split"),
    ],
)  # fmt: skip
def test_files_that_are_refused(name, content, sentence, tmp_path):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UsageError) as caught:
        draft_recipe([path])
    assert sentence in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_few_broken_rows_in_utf8_are_skipped(tmp_path):
    lines = [f"Schöne Wiese {i},{'ab'[i % 2]}\n".encode() for i in range(30)]
    lines[3] = "Schöne Wiese,a\n".encode("latin-1")
    (tmp_path / "a.csv").write_bytes(b"text,label\n" + b"".join(lines))
    assert draft_task([tmp_path / "a.csv"]).skipped == {"not UTF-8": 1}


def test_a_file_without_a_task_is_left_out(mood, tmp_path):
    odd = tmp_path / "mood\nseed = 666\r\x1b[2m.csv"
    odd.write_text("")
    with draft_recipe([mood, odd]) as draft:
        assert draft.left_out == [f"{odd}: the file is empty"]
        recipe = draft.write(tmp_path / "mine")[0]
    assert read_recipe(recipe).seed != 666
    text = recipe.read_text(encoding="utf-8")
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    (tmp_path / "b.json").write_text("")
    with pytest.raises(UsageError, match=r"the file is empty; .*b\.json: "):
        draft_recipe([odd, tmp_path / "b.json"])


def test_the_whole_of_a_task_beside_its_parts(mood, tmp_path):
    """mood.csv may hold the rows of mood-dev.csv: it is used only if the user says so."""
    for split in ("train", "dev"):
        (tmp_path / f"mood-{split}.csv").write_bytes(mood.read_bytes())
    files = sorted(tmp_path.glob("*.csv"))
    with draft_recipe(files) as draft:
        assert "already has a training file of that name" in draft.left_out[0]
    assert len(draft_task(files, splits=[f"train={mood}"]).files["train"]) == 2


def test_files_of_one_task_with_other_columns(tmp_path):
    files = [write(tmp_path / f"{c}.csv", {c: SENTENCES, "label": MOOD}) for c in ("text", "body")]
    with pytest.raises(UsageError, match=r"it has no column 'text', which text\.csv of the same"):
        draft_recipe(files, Request(tasks=[f"mood={file}" for file in files]))


# --- what the user says ------------------------------------------------------------------


def test_everything_can_be_said(mood, tmp_path):
    config = recipe_of(
        [],
        tmp_path / "mine",
        tasks=[f"feel={mood}", f"thing={mood}"],
        label=["feel=mood"],
        text=["text"],
        labels=["feel=so-so,bad,good"],
        encoder="some/encoder",
    )
    assert list(config.tasks) == ["feel", "thing"]
    assert config.tasks["feel"].labels == ("so-so", "bad", "good")
    assert config.encoder.source == "some/encoder"


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"tasks": ["mood"]}, "--task 'mood' is not of the form NAME=FILE"),
        ({"splits": ["all=x.csv"]}, "a split is train, dev or test"),
        ({"label": ["mod=mood"]}, "--label names task 'mod'; did you mean 'mood'"),
        ({"label": ["moood"]}, "there is no column 'moood'; did you mean 'mood'"),
        ({"label": ["mood, text"]}, "names 2 columns, each of which must hold 0 or 1"),
        ({"label": ["mood,text"], "kind": ["classes"]}, "that is --kind labels"),
        ({"labels": ["hot,cold"]}, "no row can be trained on: task 'mood' has no train rows"),
        ({"labels": ["good,bda"]}, r"that can be used (40 unknown label) has the same label"),
        ({"kind": ["ranks"]}, "there is no task-kind 'ranks'"),
        ({"text": ["a,b,c"]}, "names 3 columns"),
    ],
)
def test_wrong_wishes(request_, sentence, mood):
    with pytest.raises(UsageError) as caught:
        draft_recipe([mood], Request(**request_))
    assert sentence in str(caught.value)


def test_nothing_is_overwritten_unasked(mood, tmp_path):
    with draft_recipe([mood]) as draft:
        draft.write(tmp_path / "mine")
        with pytest.raises(UsageError, match="exists already and is not overwritten"):
            draft.write(tmp_path / "mine")
        draft.write(tmp_path / "mine", overwrite=True)


def test_fifty_tasks_of_unequal_size(mood, tmp_path):
    few = {"text": SENTENCES[:12], "label": HALF[:12]}
    files = [write(tmp_path / f"t{i}.csv", few) for i in range(49)]
    config = recipe_of([mood, *files], tmp_path / "mine")
    assert len(config.tasks) == 50
    assert config.train.schedule == {"name": "square-root"}


# --- the Hub -----------------------------------------------------------------------------


class FakeSplit:
    """What plait asks of a split of `datasets`."""

    def __init__(self, columns: dict[str, list], features: dict):
        self.columns, self.features = columns, features

    def remove_columns(self, names: list[str]) -> FakeSplit:
        kept = {name: values for name, values in self.columns.items() if name not in names}
        return FakeSplit(kept, self.features)

    def map(self, function, remove_columns: list[str]) -> FakeSplit:
        rows = [
            dict(zip(self.columns, row, strict=True))
            for row in zip(*self.columns.values(), strict=True)
        ]
        changed = [function(row) for row in rows]
        return FakeSplit(
            self.columns | {n: [row[n] for row in changed] for n in remove_columns}, self.features
        )

    def to_parquet(self, path: Path) -> None:
        pyarrow.parquet.write_table(pa.table(self.columns), path)


def test_a_data_set_of_the_hub(tmp_path, monkeypatch):
    label = SimpleNamespace(names=["negative", "positive"], dtype="int64")
    text = SimpleNamespace(dtype="string")
    features = {"text": text, "label": label, "image": SimpleNamespace(dtype="PIL.Image.Image")}

    def load_dataset(name: str, config: str | None) -> dict[str, FakeSplit]:
        assert (name, config) == ("owner/mood", "small")
        columns = {"text": SENTENCES, "label": [i % 2 for i in range(NUM)], "image": [b""] * NUM}
        hidden = columns | {"label": [-1] * NUM}
        return {"train": FakeSplit(columns, features), "validation": FakeSplit(columns, features),
                "test": FakeSplit(hidden, features)}  # fmt: skip

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    config = recipe_of(["hf:owner/mood:small"], tmp_path / "mine")
    task = config.tasks["mood-small"]
    assert (task.kind.name, task.labels) == ("binary", ("negative", "positive"))
    assert len(rows_of(config, "mood-small", "dev")) == NUM
    names = {path.name for path in (tmp_path / "mine" / "data").iterdir()}
    assert names == {f"mood-small-{split}.parquet" for split in ("train", "validation", "test")}


def test_the_hub_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"pip install 'plait\[datasets\]'"):
        draft_recipe(["hf:owner/mood"])
