"""Files become recipes that plait reads, and guesses that a person would make."""

from __future__ import annotations

import csv
import json
import sys
import unicodedata
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet
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
    assert (task.kind, task.labels, task.text, task.label) == (
        ("classes", ("bad", "good", "so-so"), ("text",), "mood")
    )
    train, dev = rows_of(config, "mood", "train"), rows_of(config, "mood", "dev")
    assert (len(train), len(dev)) == (48, 12)
    assert {text for text, _ in train} | {text for text, _ in dev} == set(SENTENCES)
    assert [sum(label == i for _, label in dev) for i in range(3)] == [4, 4, 4]


def test_names_that_hold_ends_of_lines_stay_in_their_comments(tmp_path):
    odd = "mood\nseed = 666\r\x1b[2m\u2028"
    rows = [[text, MOODS[i % 3]] for i, text in enumerate(SENTENCES)]
    try:
        path = write(tmp_path / f"{odd}.csv", [["text", "mood"], *rows, ["", "good"]])
        skipped = write(tmp_path / f"{odd}2.csv", [["a"], ["1"]])
    except OSError:
        pytest.skip("file names cannot hold these here")
    with draft_recipe([path, skipped], Request()) as draft:
        recipe = draft.write(tmp_path / "mine")[0]
    assert read_recipe(recipe).seed != 666
    text = recipe.read_text(encoding="utf-8")
    assert "\nseed = 666" not in text
    assert "# Left out: " in text
    assert all(letter.isprintable() or letter == "\n" for letter in text)


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
    assert (task.kind, task.range, task.is_pair) == ("score", (0.0, 5.0), True)
    assert task.bad_rows == "skip"


def test_where_the_first_row_is_that_cannot_be_used(tmp_path):
    rows = [[text, MOODS[i % 3]] for i, text in enumerate(SENTENCES)]
    rows[30][1] = ""
    write(tmp_path / "a-train.csv", [["text", "mood"], *rows])
    write(tmp_path / "a-dev.csv", [["text", "mood"], *rows])
    with draft_recipe(sorted(tmp_path.glob("*.csv"))) as draft:
        (told,) = (note for note in draft.tasks[0].notes if "skipped" in note)
    assert told.endswith("are skipped: 2 missing label; the first is in a-train.csv, line 32")


def test_a_copy_has_other_lines(tmp_path):
    rows = [[text, MOODS[i % 3]] for i, text in enumerate(SENTENCES)]
    rows[30][1] = ""
    write(tmp_path / "bare.csv", rows)
    with draft_recipe([tmp_path / "bare.csv"]) as draft:
        (told,) = (note for note in draft.tasks[0].notes if "skipped" in note)
    assert told.endswith("are skipped: 1 missing label")


def test_scores_that_all_differ_beside_a_column_that_never_does(tmp_path):
    lines = [f"news\t{i / 7:.3f}\tA dog {i} runs.\tA cat {i} walks." for i in range(30)]
    path = tmp_path / "near.tsv"
    path.write_text("\n".join(["genre\tscore\tsentence1\tsentence2", *lines]), encoding="utf-8")
    with draft_recipe([path]) as draft:
        (task,) = draft.tasks
    assert (task.guesses["label"].value, task.config.kind) == ("score", "score")
    assert not any("genre" in note for note in task.notes)


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


def test_a_column_of_splits_under_another_name(tmp_path):
    words = ["Train", "train", "train", "dev", "test"] * 12
    rows = [[s, MOODS[i % 3], words[i]] for i, s in enumerate(SENTENCES)]
    config = recipe_of(
        [write(tmp_path / "mood.csv", [["text", "Stimmung", "Teil"], *rows])], tmp_path / "mine"
    )
    assert config.tasks["mood"].label == "Stimmung"
    assert [len(rows_of(config, "mood", s)) for s in ("train", "dev", "test")] == [36, 12, 12]
    # Trains and buses are no splits, nor is a sentence that has such a word in it.
    for other in ("bus", "test drive"):
        rows = [[s, ("train", other)[i % 2]] for i, s in enumerate(SENTENCES)]
        file = write(tmp_path / "ride.csv", [["text", "vehicle"], *rows])
        with draft_recipe([file]) as draft:
            assert draft.tasks[0].guesses["label"].value == "vehicle"


def test_sentences_that_come_again_are_no_likelier_a_label_than_numbers_with_a_gap(tmp_path):
    header = ["english", "deutsch", "nähe"]
    told = ["Ein Mann spielt Gitarre.", "Ein Kind malt ein Bild.", "Der Hund läuft weg."]
    rows = [[s, told[i % 3], f"{i % 7 / 2}" if i else ""] for i, s in enumerate(SENTENCES)]
    with draft_recipe([write(tmp_path / "a.csv", [header, *rows])]) as draft:
        assert draft.tasks[0].guesses["label"].value == "nähe"


def test_names_of_columns_in_other_alphabets(tmp_path):
    rows = [[s, MOODS[i % 3]] for i, s in enumerate(SENTENCES)]
    config = recipe_of([write(tmp_path / "a.csv", [["текст", "метка"], *rows])], tmp_path / "mine")
    assert (config.tasks["a"].text, config.tasks["a"].label) == (("текст",), "метка")


def test_scores_under_a_name_that_is_not_known(tmp_path):
    """Numbers with fractions name no row; all of them may differ."""
    rows = [[a, b, str(i / 12)] for i, (a, b) in enumerate(pairwise(SENTENCES))]
    path = write(tmp_path / "nah.csv", [["Satz1", "Satz2", "Ähnlichkeit"], *rows])
    task = recipe_of([path], tmp_path / "mine").tasks["nah"]
    assert (task.text, task.label) == (("Satz1", "Satz2"), "Ähnlichkeit")
    assert (task.kind, task.range) == ("score", (0.0, 5.0))
    rows = [[*row, MOODS[i % 3]] for i, row in enumerate(rows)]
    path = write(tmp_path / "neu.csv", [["Satz1", "Satz2", "Preis", "Stimmung"], *rows])
    assert recipe_of([path], tmp_path / "new").tasks["neu"].label == "Stimmung"


def test_dates_are_no_label_and_whole_numbers_that_all_differ_are_none(tmp_path):
    rows = [
        [str(i), text, ("sí", "no")[i % 2], f"{i % 28 + 1}.3.2024"]
        for i, text in enumerate(SENTENCES)
    ]
    path = write(tmp_path / "spam.csv", [["nr", "texto", "sucio", "visto"], *rows])
    task = recipe_of([path], tmp_path / "mine").tasks["spam"]
    assert (task.label, task.kind, task.labels) == ("sucio", "binary", ("no", "sí"))
    bare = write(tmp_path / "bare.csv", [["nr", "texto"], *([n, t] for n, t, *_ in rows)])
    with pytest.raises(UsageError, match="no column looks like a label"):
        recipe_of([bare], tmp_path / "bare")


@pytest.mark.parametrize("request_", [Request(), Request(kind=["score"])])
def test_scores_with_a_comma_are_found_and_refused_by_name(tmp_path, request_):
    rows = [[text, f"{i % 5},{i % 7}"] for i, text in enumerate(SENTENCES)]
    rows += [["Nobody has said of this one.", ""], ["Nor of this.", "k.A."]]
    path = write(tmp_path / "stars.csv", [["text", "score"], *rows], separator=";")
    with pytest.raises(UsageError, match=r"'score' has commas in its numbers, such as '0,0'"):
        recipe_of([path], tmp_path, request_)


def test_semicolons_divide_rows_whose_texts_have_lines_of_their_own(tmp_path):
    rows = [[f"Hello,\n\n{text}\n", MOODS[i % 3]] for i, text in enumerate(SENTENCES)]
    path = write(tmp_path / "mail.csv", [["message", "mood"], *rows], separator=";")
    config = recipe_of([path], tmp_path / "mine")
    assert (config.tasks["mail"].text, config.tasks["mail"].label) == (("message",), "mood")
    assert len(rows_of(config, "mail", "train")) == 48


def test_names_of_labels_in_other_languages_with_accents_of_their_own(tmp_path):
    rows = [[t, MOODS[i % 3], ("Luc", "Zoé")[i % 2]] for i, t in enumerate(SENTENCES)]
    name = unicodedata.normalize("NFD", "Catégorie")
    path = write(tmp_path / "avis.csv", [["texte", name, "auteur"], *rows])
    assert recipe_of([path], tmp_path / "mine").tasks["avis"].label == name


def test_texts_without_spaces_between_words(tmp_path):
    things = ("映画", "小説", "散歩", "食事", "音楽", "料理")
    rows = [[f"昨日の{things[i % 6]}は{i}回目でした", ("良い", "悪い")[i % 2]] for i in range(60)]
    path = write(tmp_path / "kanjo.csv", [["文", "感情"], *rows])
    task = recipe_of([path], tmp_path / "mine").tasks["kanjo"]
    assert (task.text, task.label, task.kind) == (("文",), "感情", "classes")


def test_a_pair_whose_numbers_are_words_and_a_priority(tmp_path):
    header = ["id", "question one", "question two", "priority", "agent"]
    rows = [
        [str(i), s, SENTENCES[i - 1], str(i % 4 + 1), "ABC"[i % 3]] for i, s in enumerate(SENTENCES)
    ]
    config = recipe_of([write(tmp_path / "a.csv", [header, *rows])], tmp_path / "mine")
    assert config.tasks["a"].text == ("question one", "question two")
    assert config.tasks["a"].label == "priority"


def split_file(path: Path, words: list[str], **changed: str) -> Path:
    """Write moods with a word for the split each; `changed` names labels by row."""
    rows = [
        [s, changed.get(f"row{i}", MOODS[i % 3]), word]
        for i, (s, word) in enumerate(zip(SENTENCES, words, strict=True))
    ]
    return write(path, [["text", "label", "split"], *rows])


def test_a_column_called_split_with_a_word_for_none_is_told(tmp_path):
    words = ["train", "train", "train", "dev", "golden"] * 12
    with draft_recipe([split_file(tmp_path / "mood.csv", words)], Request()) as draft:
        notes = draft.tasks[0].notes
    told = [note for note in notes if "column 'split' is not followed" in note]
    assert len(told) == 1
    assert "'golden' names no split" in told[0]


def test_several_words_for_one_split_and_rows_that_cannot_be_used(tmp_path):
    words = ["train", "training", "train", "dev", "test"] * 12
    file = split_file(tmp_path / "mood.csv", words, row0="", row3="", row4="")
    with draft_recipe([file]) as draft:
        (task,) = draft.tasks
        assert task.num_rows == {"train": 35, "dev": 11, "test": 12}
        assert any("2 missing label; the first is in mood.csv, line 2" in n for n in task.notes)
        draft.write(tmp_path / "mine")
    mood = read_recipe(tmp_path / "mine" / "recipe.toml").tasks["mood"]
    assert mood.train[0].where == {"split": ("train", "training")}
    assert mood.bad_rows == "skip"


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


def test_text_in_another_encoding_and_without_a_header(tmp_path):
    rows = [[f"caf\xe9 {text}", str(i % 2)] for i, text in enumerate(SENTENCES)]
    file = write(tmp_path / "places.csv", rows, ";", "cp1252")
    with draft_recipe([file]) as draft:
        (task,) = draft.tasks
        assert task.guesses["text"].value == "column1"
        assert any("cp1252" in note for note in task.notes)
        assert any("no header" in note for note in task.notes)
        draft.write(tmp_path / "mine")
    config = read_recipe(tmp_path / "mine" / "recipe.toml")
    assert rows_of(config, "places", "train")[0][0].startswith("café The")
    assert len(rows_of(config, "places", "train")) + len(rows_of(config, "places", "dev")) == 60


def test_quotes_that_enclose_nothing(tmp_path):
    lines = [f'he said "{s}\t{i % 2}' for i, s in enumerate(SENTENCES)]
    for split in ("train", "dev"):
        (tmp_path / f"q-{split}.tsv").write_text(
            "\n".join(['"text\tlabel', *lines]).replace('"text', "text")
        )
    lines[3] = '"so he said\t1'
    (tmp_path / "q-train.tsv").write_text("\n".join(["text\tlabel", *lines]))
    config = recipe_of(sorted(tmp_path.glob("*.tsv")), tmp_path / "mine")
    assert config.tasks["q"].train[0].quoting is False
    assert len(rows_of(config, "q", "train")) == 60


def test_json_lines_and_parquet(tmp_path):
    (tmp_path / "a.jsonl").write_text(
        "\n".join(
            json.dumps({"title": "T", "body": s, "spam": i % 2 == 0})
            for i, s in enumerate(SENTENCES)
        )
    )
    table = pa.table({"review": SENTENCES, "stars": [i % 5 + 1 for i in range(60)]})
    pyarrow.parquet.write_table(table, tmp_path / "b.parquet")
    config = recipe_of([tmp_path / "a.jsonl", tmp_path / "b.parquet"], tmp_path / "mine")
    assert (config.tasks["a"].kind, config.tasks["a"].label) == ("binary", "spam")
    assert config.tasks["b"].labels == tuple("12345")
    ours, theirs = ({row[-2] for row in rows_of(config, name, "dev")} for name in ("a", "b"))
    assert ours == theirs  # both have the same sentences
    assert 45 <= len(rows_of(config, "b", "train")) <= 50


def test_keys_that_the_first_object_lacks(tmp_path):
    rows = [
        {"id": i, "body": s, "mood": MOODS[i % 3], "meta": {"lang": "en", "n": i}, "seen": i % 7}
        for i, s in enumerate(SENTENCES)
    ]
    del rows[0]["body"], rows[1]["id"], rows[2]["mood"]
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    with draft_recipe([path]) as draft:
        (task,) = draft.tasks
        assert (task.roles.text, task.roles.label, task.roles.id) == (("body",), ("mood",), None)
        assert "could be read with it" not in task.roles.why["text"]
        assert "meta" not in task.roles.others
        assert task.skipped == {"missing key": 2}
        assert any("column 'meta' holds objects" in note for note in task.notes)
    with pytest.raises(UsageError, match=r"a\.jsonl: column 'meta' holds objects, which are not"):
        draft_recipe([path], Request(text=["meta"]))


def test_times_of_parquet_are_no_text(tmp_path):
    start = datetime(2024, 1, 1)
    times = pa.array([start + timedelta(hours=i) for i in range(60)], pa.timestamp("us"))
    table = pa.table({"line": SENTENCES, "mood": [MOODS[i % 3] for i in range(60)], "seen": times})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with draft_recipe([tmp_path / "a.parquet"]) as draft:
        assert "seen" not in draft.tasks[0].roles.why["text"]


def test_everything_can_be_said(mood, tmp_path):
    request = Request(
        tasks=[f"feel={mood}", f"thing={mood}"],
        label=["feel=mood"],
        text=["text"],
        labels=["feel=so-so,bad,good"],
        dev_fraction=0.5,
        seed=5,
        encoder="some/encoder",
    )
    config = recipe_of([], tmp_path / "mine", request)
    assert list(config.tasks) == ["feel", "thing"]
    assert config.tasks["feel"].labels == ("so-so", "bad", "good")
    assert (config.seed, config.encoder.source) == (5, "some/encoder")
    assert len(rows_of(config, "feel", "dev")) == 30


def test_labels_given_that_no_row_has_leave_one(mood, tmp_path):
    with pytest.raises(UsageError, match=r"of the labels good, bda, training rows have good alone"):
        recipe_of([mood], tmp_path / "mine", Request(labels=["good,bda"]))


def test_one_class_has_nearly_all(tmp_path):
    rows = [[s, "1" if i < 6 else "0"] for i, s in enumerate(SENTENCES)]
    file = write(tmp_path / "spam.csv", [["text", "label"], *rows])
    assert recipe_of([file], tmp_path / "mine").tasks["spam"].metric == "macro_f1"


def test_tasks_of_unequal_size_are_drawn_by_the_root(mood, tmp_path):
    few = write(
        tmp_path / "few.csv",
        [["text", "label"], *([f"Some words {i}", str(i % 2)] for i in range(10))],
    )
    assert recipe_of([mood, few], tmp_path / "mine").train.schedule == {"name": "square-root"}


def test_fifty_tasks(tmp_path):
    rows = [["text", "label"], *([s, str(i % 2)] for i, s in enumerate(SENTENCES[:12]))]
    files = [write(tmp_path / f"t{i}.csv", rows) for i in range(50)]
    assert len(recipe_of(files, tmp_path / "mine").tasks) == 50


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


def test_files_of_one_task_with_other_columns(tmp_path):
    names = []
    for name, text in (("a.csv", "text"), ("b.csv", "body")):
        rows = [[text, "label"], *([s, str(i % 2)] for i, s in enumerate(SENTENCES[:12]))]
        names.append(write(tmp_path / name, rows))
    told = r"b\.csv: it has no column 'text', which a\.csv of the same task has"
    with pytest.raises(UsageError, match=told):
        draft_recipe(names, Request(tasks=[f"mood={name}" for name in names]))


def test_rows_of_two_encodings_are_noted(tmp_path):
    rows = [f"Sch\u00f6ne gr\u00fcne Wiese {i},{'ab'[i % 2]}\n" for i in range(30)]
    data = [row.encode("utf-8" if i < 5 else "cp1252") for i, row in enumerate(rows)]
    (tmp_path / "a.csv").write_bytes(b"text,label\n" + b"".join(data))
    with draft_recipe([tmp_path / "a.csv"]) as draft:
        (note,) = [note for note in draft.tasks[0].notes if "cp1252" in note]
    assert "though 10 of its signs would be: rows of two encodings may be mixed" in note


def test_problems_are_told_of_the_file_that_was_given(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\n", "utf-16")
    with pytest.raises(UsageError) as caught:
        draft_recipe([tmp_path / "a.csv"])
    assert str(caught.value).startswith(f"{tmp_path / 'a.csv'}: there are no rows")


def test_every_file_has_its_own_problem(tmp_path):
    for name, content in (("a.csv", ""), ("b.csv", "text,label\n"), ("c.json", "[]")):
        (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=r"a\.csv: .* empty; .*b\.csv: .*no rows.*; .*c\.json: "):
        draft_recipe([tmp_path / name for name in ("a.csv", "b.csv", "c.json")])


def test_a_file_that_cannot_be_used_is_left_out_of_many(mood, tmp_path):
    (tmp_path / "empty.csv").write_text("")
    with draft_recipe([mood, tmp_path / "empty.csv"]) as draft:
        assert [task.name for task in draft.tasks] == ["mood"]
        assert draft.left_out == [f"{tmp_path / 'empty.csv'}: the file is empty"]


def test_the_whole_of_a_task_beside_its_parts(mood, tmp_path):
    """mood.csv may hold the rows of mood-dev.csv: it is taken only when told."""
    for split in ("train", "dev"):
        (tmp_path / f"mood-{split}.csv").write_bytes(mood.read_bytes())
    files = sorted(tmp_path.glob("*.csv"))
    with draft_recipe(files) as draft:
        assert "has a training file of that name already" in draft.left_out[0]
    with draft_recipe(files, Request(splits=[f"train={mood}"])) as draft:
        assert len(draft.tasks[0].files["train"]) == 2


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
    assert (task.kind, task.label, task.labels, task.id) == ("labels", FEELINGS, FEELINGS, "id")
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


def test_files_of_such_columns_stay_where_they_are(tmp_path):
    files = [feelings(tmp_path / f"felt-{split}.csv") for split in ("train", "dev")]
    files.append(write(tmp_path / "felt-test.csv", [["text"], *([text] for text in SENTENCES)]))
    config = recipe_of(files, tmp_path / "mine")
    assert sorted(p.name for p in (tmp_path / "mine").iterdir()) == ["recipe.toml"]
    task = config.tasks["felt"]
    assert [file.path for file in (*task.train, *task.dev, *task.test)] == [f.name for f in files]


def test_such_columns_can_be_named(tmp_path):
    path = feelings(tmp_path / "felt.csv")
    some = recipe_of([path], tmp_path / "some", Request(label=["anger, fear"])).tasks["felt"]
    assert (some.kind, some.label) == ("labels", ("anger", "fear"))
    assert "guessed that these columns" not in (tmp_path / "some" / "recipe.toml").read_text()
    one = recipe_of([path], tmp_path / "one", Request(label=["anger"])).tasks["felt"]
    assert (one.kind, one.label) == ("binary", "anger")
    kind = recipe_of([path], tmp_path / "kind", Request(kind=["binary"])).tasks["felt"]
    assert kind.kind == "binary"


NUM = len(SENTENCES)


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ([("mood", [MOODS[i % 3] for i in range(NUM)])], FEELINGS),
        ([("body", SENTENCES[::-1]), ("reply", SENTENCES)], FEELINGS),
        ([], ("label", "is_reply", "has_link")),
        ([], ("joy", "anger", "user_id")),
        ([], ("joy", "anger", "fold")),
    ],
    ids=["another label", "more text", "one is the label", "an id", "a fold"],
)
def test_where_it_is_not_plain_one_column_is_the_label(tmp_path, more, names):
    path = feelings(tmp_path / "felt.csv", *more, names=names)
    with draft_recipe([path]) as draft:
        (task,) = draft.tasks
        assert len(task.roles.label) == 1
        assert task.config.kind.name in ("binary", "classes")


def test_a_column_with_gaps_or_other_numbers_is_none_of_them(tmp_path):
    rows = [[text, str(i % 2), str(i % 3)] for i, text in enumerate(SENTENCES)]
    path = write(tmp_path / "felt.csv", [["text", "joy", "anger"], *rows])
    with draft_recipe([path]) as draft:
        assert len(draft.tasks[0].roles.label) == 1
    rows = [[text, str(i % 2), "1" if i % 3 else ""] for i, text in enumerate(SENTENCES)]
    write(path, [["text", "joy", "anger"], *rows])
    with draft_recipe([path]) as draft:
        assert len(draft.tasks[0].roles.label) == 1


def test_labels_that_no_row_has(mood):
    with pytest.raises(UsageError, match="has one of the labels hot, cold in column 'mood'"):
        draft_recipe([mood], Request(labels=["hot,cold"]))


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
    assert (task.kind, task.labels) == ("binary", ("negative", "positive"))
    assert len(rows_of(config, "mood-small", "dev")) == 60
    header = (tmp_path / "mine" / "data" / "mood-small-test.csv").read_text().splitlines()[0]
    assert header == "text"


def test_the_hub_without_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"pip install 'plait\[datasets\]'"):
        draft_recipe(["hf:owner/mood"])


# --- real files --------------------------------------------------------------------------


def test_the_course_files(shared, tmp_path):
    files = []
    for path in sorted((shared / "data" / "course").glob("*.csv")):
        with path.open(encoding="utf-8") as file:
            start = [next(file) for _ in range(200)]
        files.append(tmp_path / path.name)
        files[-1].write_text("".join(start), encoding="utf-8")
    with draft_recipe(files) as draft:
        found = {
            t.name: (t.config.kind, t.config.text, t.config.label, t.config.id) for t in draft.tasks
        }
    pair = ("sentence1", "sentence2")
    assert found == {
        "ids-cfimdb": ("binary", ("sentence",), "sentiment", "id"),
        "ids-sst": ("classes", ("sentence",), "sentiment", "id"),
        "quora": ("binary", pair, "is_duplicate", "id"),
        "sts": ("score", pair, "similarity", "id"),
    }
