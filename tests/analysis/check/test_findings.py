"""Every check finds what it should, at the right lines, and nothing else."""

from __future__ import annotations

import pytest

from plait.analysis.check import check_recipe


def lines(finding) -> list[int]:
    return [place.line for place in finding.places]


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
