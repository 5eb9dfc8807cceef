"""A file's name becomes the task and the split it is likely to belong to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from plait.data import SplitName

SPLIT_WORDS: dict[str, SplitName] = {
    **dict.fromkeys(("train", "training", "trn", "trainset"), "train"),
    **dict.fromkeys(("dev", "development", "val", "valid", "validation", "trial"), "dev"),
    **dict.fromkeys(("test", "testing", "testset", "tst", "heldout", "holdout"), "test"),
}

_FORMATS = {".csv", ".tsv", ".txt", ".tab", ".jsonl", ".ndjson", ".parquet", ".gz", ".xz"}
_HELD_OUT = re.compile(r"(?<![a-z])(held|hold)[-_. ](?=out(?![a-z]))", re.IGNORECASE)
_SHARD = re.compile(r"\d+-of-\d+")
_GENERIC = {"", "data", "dataset", "datasets", "raw", "csv", "files", "input", "splits"}
"""Folders that say nothing of a task."""

NAMELESS = "task"
"""What a task is called when neither its files nor their folder tell."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a file's name says."""

    task: str
    split: SplitName | None
    """None where the name has no word for it."""
    word: str = ""
    """The word for the split, as written."""


def read_name(path: Path) -> Named:
    """Split a file's name at its marks: 'mood.dev.tsv' is the dev file of 'mood'.

    What follows the word for the split is dropped ('mood-test-student' is of 'mood'), unless it
    comes first ('train-mood'). A file called just 'train.csv' is named after its folder.
    """
    stem = path.name
    while (dot := stem.rfind(".")) > 0 and stem[dot:].lower() in _FORMATS:
        stem = stem[:dot]
    words = [word for word in re.split(r"[-_. ]+", _in_one(_SHARD.sub("", stem))) if word]
    places = [i for i, word in enumerate(words) if word.lower() in SPLIT_WORDS]
    if not places:
        return Named(_task_name(words) or _folder_name(path), None)
    place = places[-1]
    before, after = words[:place], words[place + 1 :]
    rest = before or [word for word in after if not word.isdecimal()]
    word = words[place]
    return Named(_task_name(rest) or _folder_name(path), SPLIT_WORDS[word.lower()], word)


def read_split_word(written: str) -> SplitName | None:
    """Return the split that a word in a column names: 'validation', 'SICK_train.txt'."""
    for word in re.split(r"[^a-z]+", _in_one(written.lower())):
        if word in SPLIT_WORDS:
            return SPLIT_WORDS[word]
    return None


def _in_one(text: str) -> str:
    """Write 'held-out' and 'hold out' in one word."""
    return _HELD_OUT.sub(r"\1", text)


def _task_name(words: list[str]) -> str:
    """Join words to a name that a recipe takes: letters, digits, - and _ alone."""
    joined = re.sub(r"[^A-Za-z0-9_-]+", "", "-".join(words)).strip("-")
    return joined if re.search(r"[A-Za-z0-9]", joined) else ""


def _folder_name(path: Path) -> str:
    folder = path.resolve().parent.name
    if folder.lower() in _GENERIC:
        return NAMELESS
    return _task_name(re.split(r"[-_. ]+", folder)) or NAMELESS
