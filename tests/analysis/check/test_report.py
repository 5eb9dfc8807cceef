"""Every check finds what it should, at the right lines, and nothing else."""

from __future__ import annotations

import json

import pytest

from plait.analysis.check import check_recipe


def lines(finding) -> list[int]:
    return [place.line for place in finding.places]


def test_the_summary(report):
    train, dev = report.splits
    assert (train.task, train.split, train.num_rows) == ("mood", "train", 8)
    assert train.labels == {"bad": 3, "good": 5}
    assert dev.labels == {"bad": 1, "good": 2}
    # [CLS] the film was great . [SEP]; row 7 is spelt in letters, the vocabulary has few words
    assert train.lengths.median == 7
    assert train.lengths.cut == 1


def test_what_is_found(report, found):
    assert {(f.check, f.split) for f in report.findings} == {
        ("duplicates", "train"),
        ("contradictions", "train"),
        ("short texts", "train"),
        ("lengths", "train"),
        ("personal data", "train"),
        ("balance", "train"),
        ("overlap", "dev"),
    }
    assert not report.stops
    assert lines(found(report, "duplicates")) == [3]
    # the row that begins in line 5 has a line break inside its quotes
    assert lines(found(report, "contradictions")) == [4, 5]
    assert [p.detail for p in found(report, "contradictions").places] == ["label bad", "label good"]
    assert lines(found(report, "short texts")) == [7]
    assert lines(found(report, "lengths")) == lines(found(report, "personal data")) == [9]
    overlap = found(report, "overlap", "dev")
    assert lines(overlap) == [2]
    assert overlap.places[0].detail.startswith("as line 8 of ")
    assert "fewer than 5 rows have the label bad (3)" in found(report, "balance").sentence


def test_ids_that_two_rows_have(write_recipe, found):
    rows = "id,text,label\n7,the film was great .,good\n8,the book was awful .,bad\n"
    report = check_recipe(
        write_recipe(f'{rows}7,"the walk\nwas dull .",bad\n7,a fine song .,good\n')
    )
    finding = found(report, "ids")
    assert (finding.level, lines(finding)) == ("note", [4, 6])
    assert finding.sentence == "2 rows have ids that rows before them have"
    assert not [f for f in check_recipe(write_recipe(rows)).findings if f.check == "ids"]


def test_unknown_words_by_file(write_recipe, tmp_path):
    train = "id,text,label\n1,the film was great .,good\n2,the book was awful .,bad\n"
    other = tmp_path / "other.csv"
    # [UNK] stands for what the vocabulary has no letters of.
    other.write_text("id,text,label\n3,☃ ☃ film was ☃,good\n", encoding="utf-8")
    report = check_recipe(write_recipe(train, train=["train.csv", "other.csv"]))
    shares = {str(tmp_path / "train.csv"): 0.0, str(other): 3 / 5}
    assert report.splits[0].unknown == shares
    assert report.to_json()["splits"][0]["unknown"] == shares
    (finding,) = [f for f in report.findings if f.check == "unknown words"]
    told = f"60% of the tokens of {other} are unknown to the encoder's tokenizer"
    assert (finding.level, finding.sentence) == ("warning", told)


def test_texts_are_shown_only_when_asked_for(report):
    assert "jane" not in json.dumps(report.to_json())
    assert "jane.doe@example.org" in json.dumps(report.to_json(show=True))


def test_data_without_fault(write_recipe):
    rows = [f"{i},the {thing} was {mood} .,{label}" for i, (thing, mood, label) in enumerate(
        (t, m, lab) for t in ("film", "book", "song", "meal", "walk", "room")
        for m, lab in (("great", "good"), ("dull", "bad")))]  # fmt: skip
    train = "\n".join(["id,text,label", *rows])
    dev = "id,text,label\n1,the game was fine .,good\n2,the train was sad .,bad\n"
    assert check_recipe(write_recipe(train, dev)).findings == []


def test_bad_rows_stop_training_or_are_skipped(write_recipe, found):
    train = "id,text,label\n1,the film was great .,good\n2,,bad\n3,the book,awful\n4,the song,\n"
    report = check_recipe(write_recipe(train))
    finding = found(report, "bad rows")
    assert (finding.level, finding.count, lines(finding)) == ("stop", 3, [3, 4, 5])
    assert "1 empty text, 1 unknown label, 1 missing label" in finding.sentence
    assert report.stops
    report = check_recipe(write_recipe(train, bad_rows="skip"))
    assert found(report, "bad rows").level == "note"
    assert not report.stops


def test_only_drawn_rows_are_looked_at(write_recipe, found):
    train = "id,text,label\n1,the film was great .,good\n2,,bad\n3,the book was dull .,bad\n"
    report = check_recipe(write_recipe(train, bad_rows="skip", count=1))
    assert report.splits[0].num_rows == 1
    assert lines(found(report, "bad rows")) == [3]


def test_a_constant_and_one_class_that_has_nearly_all(write_recipe, found):
    same = "id,text,label\n" + "".join(f"{i},the film was {i},good\n" for i in range(9))
    told = found(check_recipe(write_recipe(same)), "balance").sentence
    assert told == "every row has the label good: there is nothing to learn"
    more = same + "".join(f"{i},the book is {i},bad\n" for i in range(6)) + same[14:] * 3
    telling = [
        f.sentence for f in check_recipe(write_recipe(more)).findings if f.check == "balance"
    ]
    assert telling[0].startswith("86% of the rows are labelled good")
    report = check_recipe(write_recipe(more, metric="macro_f1"))
    assert not [f for f in report.findings if f.check == "balance"]


def test_pairs_in_either_order_and_scores_that_differ(write_recipe, found):
    task = {"kind": "score", "range": [0, 5], "text": ["a", "b"], "label": "score"}
    train = "id,a,b,score\n1,the film,a book,1\n2,A book.,the film!,4.5\n"
    train += "3,the song,a walk,2\n4,the song,a walk,2.5\n"
    dev = "id,a,b,score\n1,a walk,the song,2\n"
    config = write_recipe(train, dev)
    recipe = config.model_copy(
        update={"tasks": {"mood": config.tasks["mood"].model_validate(
            task | {"train": "train.csv", "dev": "dev.csv"})}})  # fmt: skip
    report = check_recipe(recipe)
    assert lines(found(report, "contradictions")) == [2, 3]
    assert lines(found(report, "duplicates")) == [5]
    assert lines(found(report, "overlap", "dev")) == [2]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"train": "nowhere.csv"}, "data file nowhere.csv is not there"),
        ({"label": "mood"}, "there is no column 'mood'"),
        ({"train": []}, "there are no training files"),
    ],
)
def test_what_training_would_stop_at_is_found(change, told, write_recipe):
    report = check_recipe(write_recipe(**change))
    assert report.stops
    assert told in report.findings[0].sentence


def test_no_dev_files(write_recipe, found):
    report = check_recipe(write_recipe(dev_rows=None))
    assert "no dev files" in found(report, "files", "dev").sentence
    assert not report.stops


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
        (30, 12, "32 would hold 99 of 100, at the price of time and memory"),
        (90, 12, "this encoder reads 48 at most, at the price of time and memory"),
        (90, 48, "this encoder reads no more; shorten the texts, or take one that does"),
    ],
)
def test_no_length_is_advised_that_the_encoder_cannot_read(
    write_recipe, found, num_words, max_length, advice
):
    text = " ".join(["film"] * num_words)
    config = write_recipe(f"id,text,label\n1,{text},bad\n2,{text},good\n")
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
    assert told.sentence.startswith("2 rows (66.7%) are in train of size, so the encoder learns")
    assert lines(told) == [3, 4]
    assert told.places[1].detail.endswith("size.csv")
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


def test_the_sample_of_plait():
    from plait.config import read_recipe

    report = check_recipe(read_recipe("demo", ["encoder.source=/nowhere"]))
    assert {f.check for f in report.findings if f.level == "warning"} == set()
