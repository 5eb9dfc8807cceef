"""File names become tasks and splits."""

from __future__ import annotations

from pathlib import Path

import pytest

from plait.analysis.draft.names import read_name, read_split_word


@pytest.mark.parametrize(
    ("path", "task", "split"),
    [
        ("mood-train.csv", "mood", "train"),
        ("mood.dev.tsv", "mood", "dev"),
        ("mood_validation.jsonl.gz", "mood", "dev"),
        ("Mood Test.parquet", "Mood", "test"),
        ("ids-sst-test-student.csv", "ids-sst", "test"),
        ("train-mood.csv", "mood", "train"),
        ("mood-train-00001-of-00003.parquet", "mood", "train"),
        ("topics/train.csv", "topics", "train"),
        ("topics/train-00000-of-00001.parquet", "topics", "train"),
        ("data/train.csv", "task", "train"),
        ("quora-duplicates.tsv", "quora-duplicates", None),
        ("sts12-16.tsv", "sts12-16", None),
        ("mood-hold-out.csv", "mood", "test"),
        ("trains.csv", "trains", None),
        ("the-household-out.csv", "the-household-out", None),
        ("größe!.csv", "gre", None),
    ],
)
def test_a_name_tells_task_and_split(path, task, split):
    named = read_name(Path(path))
    assert (named.task, named.split) == (task, split)


@pytest.mark.parametrize(
    ("word", "split"),
    [
        ("train", "train"),
        ("Validation", "dev"),
        ("SICK_trial.txt", "dev"),
        ("holdout", "test"),
        ("Held-Out", "test"),
        ("tests2", None),
    ],
)
def test_words_in_a_column(word, split):
    assert read_split_word(word) == split
