"""Sort data files into tasks and splits, by their names or as the user says."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from plait.analysis.draft.columns import SPLIT_WORDS, join_held_out
from plait.analysis.draft.files import DataFile, read_file
from plait.analysis.draft.hub import PREFIX, fetch
from plait.errors import DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plait.data import SplitName

SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")

_FORMATS = {".csv", ".tsv", ".txt", ".tab", ".jsonl", ".ndjson", ".parquet", ".gz", ".xz"}
_GENERIC = {"", "data", "dataset", "datasets", "raw", "csv", "files", "input", "splits"}
"""Names of folders that do not name a task."""
_NAMELESS = "task"
"""Name of a task where neither its files nor their folder give one."""


@dataclass
class Group:
    """Files of one task by split, and the reason for each split."""

    name: str
    files: dict[SplitName, list[DataFile]] = field(default_factory=dict)
    why: dict[SplitName, str] = field(default_factory=dict)

    def add(self, split: SplitName, file: DataFile, why: str) -> None:
        """Add a file to a split."""
        self.files.setdefault(split, []).append(file)
        self.why.setdefault(split, why)


def read_name(path: Path) -> tuple[str, str]:
    """Return the task and the word for the split in a file's name; '' where it has none.

    'mood.dev.tsv' is the dev file of 'mood'. What follows the word is dropped
    ('mood-test-student'), unless it comes first ('train-mood'). 'train.csv' alone is named after
    its folder.
    """
    stem = path.name
    while (dot := stem.rfind(".")) > 0 and stem[dot:].lower() in _FORMATS:
        stem = stem[:dot]
    stem = join_held_out(re.sub(r"\d+-of-\d+", "", stem))  # of several shards
    words = [word for word in re.split(r"[-_. ]+", stem) if word]
    places = [i for i, word in enumerate(words) if word.lower() in SPLIT_WORDS]
    word = words[places[-1]] if places else ""
    if places:
        after = [word for word in words[places[-1] + 1 :] if not word.isdecimal()]
        words = words[: places[-1]] or after
    folder = path.resolve().parent.name
    parent = "" if folder.lower() in _GENERIC else _task_name(re.split(r"[-_. ]+", folder))
    return _task_name(words) or parent or _NAMELESS, word


def _task_name(words: Sequence[str]) -> str:
    """Join words to a task name, which has letters, digits, - and _ only."""
    joined = re.sub(r"[^A-Za-z0-9_-]+", "", "-".join(words)).strip("-")
    return joined if re.search(r"[A-Za-z0-9]", joined) else ""


def sort_files(
    files: Sequence[str],
    tasks: Sequence[str],
    splits: Sequence[str],
    separator: str | None,
    downloads: Path,
) -> tuple[list[Group], list[str]]:
    """Return the files by task and split, and a sentence for each file that is left out.

    `tasks` are NAME=FILE and `splits` SPLIT=FILE. Data sets of the Hub go into `downloads`.
    """
    task_of, split_of = _read_tasks(tasks), _read_splits(splits)
    given: dict[str, str] = {}
    for name in (*files, *(option.partition("=")[2] for option in (*tasks, *splits))):
        given.setdefault(_key(name), name)
    groups: dict[str, Group] = {}
    problems: list[str] = []
    unmarked: list[tuple[str, DataFile, bool]] = []
    for key, name in given.items():
        is_remote = name.startswith(PREFIX)
        for path in fetch(name, downloads) if is_remote else [Path(name).expanduser()]:
            try:
                file = read_file(path, separator)
            except DataError as error:
                problems.append(str(error))
                continue
            guessed, word = read_name(path)
            for task in task_of.get(key, [guessed]):
                group = groups.setdefault(task, Group(task))
                if key in split_of:
                    group.add(split_of[key], file, "as given")
                elif word:
                    group.add(SPLIT_WORDS[word.lower()], file, f"{word!r} in its name")
                else:
                    unmarked.append((task, file, key in task_of))
    marked = {name for name, group in groups.items() if "train" in group.files}
    for task, file, is_given in unmarked:
        if task in marked and not is_given:
            problems.append(
                f"{file.path}: task {task!r} already has a training file of that name, which may "
                f"hold the same rows; use both with --split train={file.path}"
            )
        else:
            groups[task].add("train", file, "no split in its name")
    return [group for group in groups.values() if group.files], problems


def _key(file: str) -> str:
    return file if file.startswith(PREFIX) else str(Path(file).expanduser().resolve())


def _split_option(option: str, text: str, form: str) -> tuple[str, str]:
    first, _, second = text.partition("=")
    if not (first and second):
        raise UsageError(f"{option} {text!r} is not of the form {form}")
    return first, second


def _read_tasks(given: Sequence[str]) -> dict[str, list[str]]:
    """Return the tasks of each file that --task names; one file may serve several."""
    found: dict[str, list[str]] = {}
    for text in given:
        name, file = _split_option("--task", text, "NAME=FILE")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise UsageError(f"--task {text!r}: a name has letters, digits, - and _ only")
        found.setdefault(_key(file), []).append(name)
    return found


def _read_splits(given: Sequence[str]) -> dict[str, SplitName]:
    found: dict[str, SplitName] = {}
    for text in given:
        word, file = _split_option("--split", text, "SPLIT=FILE")
        split = next((split for split in SPLITS if split == word), None)
        if split is None:
            raise UsageError(f"--split {text!r}: a split is train, dev or test")
        found[_key(file)] = split
    return found
