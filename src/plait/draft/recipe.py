"""Drafts of tasks become a recipe in TOML, every guess explained in a comment."""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.draft.tasks import MUCH, SPLITS, task_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plait.data import SplitName
    from plait.draft.files import LookedAt
    from plait.draft.tasks import TaskDraft

SMALL, MIDDLE = 2_000, 20_000
"""Training rows of the largest task up to which a run is small, or of middle size."""
UNEQUAL = 4
"""Times the smallest task's rows that the largest may have for turns to be shared equally."""
WIDTH = 100
"""Columns that a line of the recipe has with its comment."""
LENGTHS = (64, 128, 256)
TOKENS_PER_WORD = 1.5
"""Of English in a BERT vocabulary; other languages have more."""


@dataclass(frozen=True)
class Placed:
    """A file as the recipe names it."""

    path: Path
    looked: LookedAt | None = None
    """Where it is the user's, how it is read."""
    where: dict[str, Any] | None = None
    """What its columns must hold for a row to be taken."""


def write_recipe(
    name: str,
    tasks: Sequence[TaskDraft],
    files: Mapping[str, Mapping[SplitName, Sequence[Placed]]],
    left_out: Sequence[str],
    *,
    encoder: str,
    seed: int,
) -> str:
    """Write the recipe's text; `files` are those of each task and split."""
    paths = [p.path for own in files.values() for some in own.values() for p in some]
    root = common_folder(paths)
    lines = [
        "# Written by `plait new`. Every guess is below with its reason: change what is wrong.",
        *(_comment(f"Left out: {sentence}") for sentence in left_out),
        "",
        f"name = {_toml(name)}",
        f"seed = {seed}  # order, heads and dropout follow from it",
    ]
    if root is not None:
        lines += ["", "[data]", "# Folder that files are relative to; --data DIR moves it."]
        lines += [f"root = {_toml(str(root))}"]
    lines += ["", *_encoder(tasks, encoder)]
    for task in tasks:
        lines += ["", *_task(task, files[task.name], root)]
    lines += ["", *_train(tasks)]
    return "\n".join(lines) + "\n"


def common_folder(paths: Sequence[Path]) -> Path | None:
    """Return the folder that holds all files; None where that is a whole disk, or there is none."""
    try:
        found = Path(os.path.commonpath([path.resolve().parent for path in paths]))
    except ValueError:  # on different drives
        return None
    return found if len(found.parts) > 1 else None


# --- tables ------------------------------------------------------------------------------


def _encoder(tasks: Sequence[TaskDraft], source: str) -> Iterator[str]:
    long = max(_long_input(task) for task in tasks)
    length = next((n for n in LENGTHS if long <= n), LENGTHS[-1])
    yield "[encoder]"
    packaged = "  # all-MiniLM-L6-v2; a Hub id or a folder is another" * (source == "packaged")
    yield f"source = {_toml(source)}{packaged}"
    cut = "; some will be cut" if long > length else ""
    yield f"# 95 of 100 inputs have up to about {long} tokens{cut}: `plait check` counts them."
    yield f"max_length = {length}"


def _long_input(task: TaskDraft) -> int:
    """Estimate the tokens of an input that 95 of 100 are not longer than."""
    first = task.files["train"][0]
    columns = [first.columns[name].values for name in task.roles.text]
    words = sorted(sum(len(text.split()) for text in row) for row in zip(*columns, strict=False))
    if len(words) < 2:
        return LENGTHS[0]
    return round(TOKENS_PER_WORD * statistics.quantiles(words, n=20)[-1]) + 3


def _task(
    task: TaskDraft, files: Mapping[SplitName, Sequence[Placed]], root: Path | None
) -> Iterator[str]:
    yield f"[tasks.{task.name}]"
    for note in task.notes:
        yield _comment(f"Note: {note}.")
    table = task_table(task.roles, task.label)
    for key, value in table.items():
        if key == "labels" and isinstance(value, list):
            yield from _words(task, value)
            continue
        why = task.guesses[key].why if key in task.guesses else ""
        yield from _explained(f"{key} = {_toml(value)}", why)
    for split in SPLITS:
        if not files.get(split):
            continue
        shown = [_file(placed, task, root) for placed in files[split]]
        value = shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"
        guess = task.guesses[split]
        made = f"made of {guess.value}: " if split in task.written else ""
        yield from _explained(f"{split} = {value}", made + guess.why)
    if task.skipped and not {"train", "dev"} <= {*task.written}:  # files made here are clean
        yield 'bad_rows = "skip"  # those that cannot be used, as noted above'
    if task.largest >= MUCH:
        yield 'metric = "macro_f1"  # one class has most rows; accuracy would hide the others'
    yield 'head = { name = "mlp", dropout = 0.1 }'


def _explained(line: str, why: str) -> Iterator[str]:
    """Write a setting and its reason, on one line where there is room."""
    comment = _comment(why)
    if not why:
        yield line
    elif len(line) + len(comment) + 2 <= WIDTH:
        yield f"{line}  {comment}"
    else:
        yield from (comment, line)


def _comment(text: str) -> str:
    """Write a comment on one line: names of files and columns may hold ends of lines."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return f"# {' '.join(shown.split())}"


def _words(task: TaskDraft, labels: list[str]) -> Iterator[str]:
    """Write the words of classes, each with its rows in train where they are few enough."""
    if len(labels) > 12 or len(task.classes) != len(labels):
        yield f"labels = {_toml(labels)}"
        return
    yield "labels = ["
    for label, count in zip(labels, task.classes, strict=True):
        yield f"  {_toml(label)},  # {count:,} rows"
    yield "]"


def _file(placed: Placed, task: TaskDraft, root: Path | None) -> str:
    path = placed.path.resolve()
    shown = path.relative_to(root).as_posix() if root is not None else str(path)
    table: dict[str, Any] = {"path": shown}
    if placed.looked is not None:
        if placed.looked.separator is not None:
            table["separator"] = placed.looked.separator
        if not placed.looked.quoting:
            table["quoting"] = False
        if task.roles.id and task.roles.id not in placed.looked.columns:
            table["id"] = ""
    if placed.where:
        table["where"] = placed.where
    if len(table) == 1:
        return _toml(shown)
    return "{ " + ", ".join(f"{key} = {_toml(value)}" for key, value in table.items()) + " }"


def _train(tasks: Sequence[TaskDraft]) -> Iterator[str]:
    sizes = [max(task.num_rows.get("train", 0), 1) for task in tasks]
    largest = max(sizes)
    yield "[train]"
    if largest <= SMALL:
        yield "# Few rows: small batches, several passes, a high rate."
        settings = (6, 16, "1e-4")
    elif largest <= MIDDLE:
        yield "# The usual settings for some thousand rows."
        settings = (3, 32, "5e-5")
    else:
        yield "# Many rows: two passes; `plait plan` counts the updates, max_steps limits them."
        settings = (2, 32, "5e-5")
    yield from (
        f"epochs = {settings[0]}",
        f"batch_size = {settings[1]}",
        f"lr = {settings[2]}",
        "warmup = 0.1",
        'decay = "linear"',
    )
    if len(tasks) == 1:
        return
    if largest > UNEQUAL * min(sizes):
        yield "# Tasks differ much in size: drawn by the root of it, small ones get their turn."
        yield 'schedule = "square-root"'
    else:
        yield "# Tasks are of like size: they take turns."
        yield 'schedule = "round-robin"'


def _toml(value: Any) -> str:
    """Write a word, number, list or table; TOML takes JSON's strings but for two characters."""
    if isinstance(value, dict):
        inner = ", ".join(f"{_toml(key)} = {_toml(item)}" for key, item in value.items())
        return "{ " + inner + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
