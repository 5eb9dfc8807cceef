"""Every check finds what it should, at the right lines, and nothing else."""

from __future__ import annotations

import json

import pytest

from plait.analysis.check import check_recipe
from plait.config import read_recipe


def lines(finding) -> list[int]:
    return [place.line for place in finding.places]


def train_file(*rows: str, header: str = "id,text,label") -> str:
    return "\n".join([header, *rows]) + "\n"


def test_the_summary(report):
    train, dev = report.splits
    assert (train.task, train.split, train.num_rows) == ("mood", "train", 8)
    assert (train.labels, dev.labels) == ({"bad": 3, "good": 5}, {"bad": 1, "good": 2})
    # [CLS] the film was great . [SEP]; row 7 is spelt in letters, the vocabulary has few words
    assert (train.lengths.median, train.lengths.cut) == (7, 1)


@pytest.mark.parametrize(
    ("check", "split", "where", "sentence"),
    [
        ("duplicates", "train", [3], "1 duplicate row"),
        # the row that begins in line 5 has a line break inside its quotes
        ("contradictions", "train", [4, 5], "1 text has different labels in 2 rows"),
        ("short texts", "train", [7], "1 row has a text of fewer than 3 letters"),
        ("lengths", "train", [9], "1 of 8 rows (12.5%) truncated at 12 tokens"),
        ("personal data", "train", [9], "1 row with what looks like personal data (mail address"),
        ("balance", "train", [], "fewer than 5 rows have the label bad (3)"),
        ("overlap", "dev", [2], "1 row (33.3%) is also in train, so dev scores are too optimistic"),
    ],
)
def test_what_is_found(report, found, check, split, where, sentence):
    finding = found(report, check, split)
    assert lines(finding) == where
    assert finding.sentence.startswith(sentence)
    assert len(report.findings) == 7
    assert not report.stops


def test_details_and_texts(report, found):
    details = [place.detail for place in found(report, "contradictions").places]
    assert details == ["label bad", "label good"]
    assert found(report, "overlap", "dev").places[0].detail.startswith("as line 8 of ")
    assert "jane" not in json.dumps(report.to_json())  # texts are shown only on request
    assert "jane.doe@example.org" in json.dumps(report.to_json(show=True))


def test_data_without_fault(write_recipe):
    rows = [f"{i},the {thing} was {mood} .,{label}" for i, (thing, mood, label) in enumerate(
        (t, m, lab) for t in ("film", "book", "song", "meal", "walk", "room")
        for m, lab in (("great", "good"), ("dull", "bad")))]  # fmt: skip
    dev = train_file("1,the game was fine .,good", "2,the train was sad .,bad")
    assert check_recipe(write_recipe(train_file(*rows), dev)).findings == []


FILM, BOOK = "the film was great .,good", "the book was awful .,bad"
BAD = train_file("1,the film was great .,good", "2,,bad", "3,the book,awful", "4,the song,",
                 "5,the,walk,bad", "6,the sea,bad", "7,,good")  # fmt: skip


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_bad_rows(write_recipe, found, policy):
    report = check_recipe(write_recipe(BAD, bad_rows=policy))
    finding = found(report, "bad rows")
    assert (finding.level, report.stops) == (
        ("stop", True) if policy == "error" else ("note", False)
    )
    assert (finding.count, lines(finding)) == (5, [3, 4, 5, 6, 8])
    assert "2 empty text, 1 unknown label, 1 missing label" in finding.sentence
    report = check_recipe(write_recipe(BAD, bad_rows=policy, count=1))
    assert report.splits[0].num_rows == 1
    assert lines(found(report, "bad rows")) == [3, 4, 5, 6, 8]  # rows not drawn are not bad


def test_duplicate_ids(write_recipe, found):
    rows = (f"7,{FILM}", f"8,{BOOK}", '7,"the walk\nwas dull .",bad', "7,a fine song .,good")
    finding = found(check_recipe(write_recipe(train_file(*rows))), "ids")
    assert (finding.level, lines(finding)) == ("note", [4, 6])
    assert finding.sentence == "2 rows have duplicate ids"
    report = check_recipe(write_recipe(train_file(*rows[:2])))
    assert not [f for f in report.findings if f.check == "ids"]


def test_unknown_words_by_file(write_recipe, tmp_path):
    other = tmp_path / "other.csv"
    # [UNK] stands for what the vocabulary has no letters of.
    other.write_text("id,text,label\n3,☃ ☃ film was ☃,good\n", encoding="utf-8")
    files = ["train.csv", "other.csv"]
    report = check_recipe(write_recipe(train_file(f"1,{FILM}", f"2,{BOOK}"), train=files))
    shares = {str(tmp_path / "train.csv"): 0.0, str(other): 3 / 5}
    assert report.to_json()["splits"][0]["unknown"] == shares
    (finding,) = [f for f in report.findings if f.check == "unknown words"]
    assert finding.sentence.startswith(f"60% of the tokens of {other} are unknown")


SAME = [f"{i},the film was {i},good" for i in range(45)]
OTHER = [f"{i},the book is {i},bad" for i in range(45, 51)]


@pytest.mark.parametrize(
    ("rows", "metric", "sentence"),
    [
        (SAME, None, "every row has the label good: there is nothing to learn"),
        (SAME + OTHER, None, "88% of the rows have the label good, so a majority-class baseline "
         "reaches 88% accuracy"),
        (SAME + OTHER, "macro_f1", ""),
        (SAME[:9] + OTHER, None, ""),
    ],
)  # fmt: skip
def test_balance(write_recipe, rows, metric, sentence):
    task = {"metric": metric} if metric else {}
    report = check_recipe(write_recipe(train_file(*rows), **task))
    assert "".join(f.sentence for f in report.findings if f.check == "balance") == sentence


def test_pairs_in_either_order_and_scores_that_differ(write_recipe, found):
    task = {"kind": "score", "range": [0, 5], "text": ["a", "b"], "label": "score"}
    rows = ("1,the film,a book,1", "2,A book.,the film!,4.5", "3,the song,a walk,2",
            "4,the song,a walk,2.5")  # fmt: skip
    config = write_recipe(
        train_file(*rows, header="id,a,b,score"), "id,a,b,score\n1,a walk,the song,2\n"
    )
    values = task | {"train": "train.csv", "dev": "dev.csv"}
    tasks = {"mood": config.tasks["mood"].model_validate(values)}
    report = check_recipe(config.model_copy(update={"tasks": tasks}))
    assert lines(found(report, "contradictions")) == [2, 3]
    assert lines(found(report, "duplicates")) == [5]
    assert lines(found(report, "overlap", "dev")) == [2]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"train": "nowhere.csv"}, "data file nowhere.csv is not there"),
        ({"label": "mood"}, "there is no column 'mood'"),
        ({"train": []}, "there are no training files"),
    ],
)
def test_what_training_would_stop_at(change, sentence, write_recipe):
    report = check_recipe(write_recipe(**change))
    assert report.stops
    assert sentence in report.findings[0].sentence


def test_without_dev_files(write_recipe, found):
    report = check_recipe(write_recipe(dev_rows=None))
    assert "no dev files" in found(report, "files", "dev").sentence
    assert not report.stops
    report = check_recipe(write_recipe(train_file(*SAME, *OTHER), None, dev_fraction=0.3))
    train, dev = report.splits
    assert (dev.split, train.num_rows + dev.num_rows) == ("dev", 51)
    assert not [f for f in report.findings if f.check in ("files", "ids", "overlap")]


def test_an_encoder_that_is_not_there(write_recipe):
    config = write_recipe()
    gone = config.encoder.model_copy(update={"source": "/nowhere"})
    report = check_recipe(config.model_copy(update={"encoder": gone}))
    assert report.findings[0].check == "encoder"
    assert report.splits[0].lengths is None
    long = config.encoder.model_copy(update={"max_length": 4096})
    report = check_recipe(config.model_copy(update={"encoder": long}))
    assert "reads at most 48 tokens" in report.findings[0].sentence


@pytest.mark.parametrize(
    ("num_words", "max_length", "advice"),
    [
        (30, 12, "32 would hold 99% of the rows, but costs time and memory"),
        (90, 12, "this encoder reads 48 at most, which costs time and memory"),
        (90, 48, "this encoder reads no more; shorten the texts, or choose one that does"),
    ],
)
def test_advice_on_lengths(write_recipe, found, num_words, max_length, advice):
    text = " ".join(["film"] * num_words)
    config = write_recipe(train_file(f"1,{text},bad", f"2,{text},good"))
    encoder = config.encoder.model_copy(update={"max_length": max_length})
    report = check_recipe(config.model_copy(update={"encoder": encoder}))
    assert found(report, "lengths").advice == advice


def test_dev_rows_that_another_task_trains_on(write_recipe, tmp_path):
    rows = "text,length\nthe song was superb .,1\nThe game was boring!,0\nthe old house,1\n"
    (tmp_path / "size.csv").write_text(rows)
    config = write_recipe()
    task = {"kind": "binary", "text": "text", "label": "length", "train": "size.csv"}
    size = config.tasks["mood"].model_validate(task)
    both = config.model_copy(update={"tasks": {**config.tasks, "size": size}})
    (told,) = [f for f in check_recipe(both).findings if "train of size" in f.sentence]
    assert (told.task, told.split, told.check, told.level) == ("mood", "dev", "overlap", "note")
    assert lines(told) == [3, 4]
    assert told.places[1].detail.startswith("as line 3 of ")
    dropped = both.model_copy(update={"data": both.data.model_copy(update={"drop_overlap": True})})
    assert not [f for f in check_recipe(dropped).findings if "train of size" in f.sentence]


def test_test_files_with_and_without_labels(write_recipe, tmp_path, found):
    (tmp_path / "test.csv").write_text("id,text\nt1,\nt2,the room was dull\n")
    report = check_recipe(write_recipe(test="test.csv"))
    assert report.splits[-1].num_rows == 2
    assert lines(found(report, "overlap", "test")) == [3]
    (tmp_path / "test.csv").write_text("id,text,label\nt1,the game was sad,bad\n")
    assert check_recipe(write_recipe(test="test.csv")).splits[-1].labels == {"bad": 1, "good": 0}


def test_the_packaged_sample():
    report = check_recipe(read_recipe("demo", ["encoder.source=/nowhere"]))
    assert not [f for f in report.findings if f.level == "warning"]
