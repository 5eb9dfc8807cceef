"""Drafts of tasks become a recipe in TOML, every guess explained in a comment."""

from __future__ import annotations

import json
import os
import re
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.analysis.draft.tasks import SPLITS, task_table
from plait.config.choose import Choice, Facts, choose, choose_length

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plait.analysis.draft.files import LookedAt
    from plait.analysis.draft.tasks import TaskDraft
    from plait.data import SplitName

WIDTH = 100
"""Columns that a line of the recipe has with its comment."""
PACKAGED_WIDTH = 384
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
    facts = [find_facts(task) for task in tasks]
    choices = choose_settings(tasks, encoder)
    lines = [
        "# Written by `plait new`. Every guess is below with its reason: change what is wrong.",
        *(_comment(f"Left out: {sentence}") for sentence in left_out),
        "",
        f"name = {_toml(name)}",
        f"seed = {seed}  # order, heads and dropout follow from it",
        *_chosen(choices, ""),
    ]
    if root is not None:
        lines += ["", "[data]", "# Folder that files are relative to; --data DIR moves it."]
        lines += [f"root = {_toml(str(root))}"]
    lines += ["", *_encoder(facts, encoder)]
    for task in tasks:
        lines += ["", *_task(task, files[task.name], root)]
        lines += _chosen(choices, f"tasks.{task.name}")
    lines += ["", "[train]", *_chosen(choices, "train")]
    for choice in choices:
        if choice.key.startswith("stage."):
            lines += ["", _comment(choice.why), f"[{choice.key}]"]
            lines += [f"{key} = {_toml(value)}" for key, value in choice.value.items()]
    return "\n".join(lines) + "\n"


def common_folder(paths: Sequence[Path]) -> Path | None:
    """Return the folder that holds all files; None where that is a whole disk, or there is none."""
    try:
        found = Path(os.path.commonpath([path.resolve().parent for path in paths]))
    except ValueError:  # on different drives
        return None
    return found if len(found.parts) > 1 else None


# --- tables ------------------------------------------------------------------------------


def _encoder(facts: Sequence[Facts], source: str) -> Iterator[str]:
    long = max(task.tokens for task in facts)
    length = choose_length(long)
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
        return 0
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


def _chosen(choices: Sequence[Choice], section: str) -> Iterator[str]:
    """Write the chosen settings of a table, each with its reason."""
    for choice in choices:
        place, _, key = choice.key.rpartition(".")
        if place == section:
            yield from _explained(f"{key} = {_toml(choice.value)}", choice.why)


def choose_settings(tasks: Sequence[TaskDraft], encoder: str) -> list[Choice]:
    """Choose the settings that follow from the tasks and the encoder."""
    return choose([find_facts(task) for task in tasks], find_width(encoder))


def find_width(source: str) -> int:
    """Return the width of the packaged encoder or of one in a folder; 0 of one on the Hub."""
    if source == "packaged":
        return PACKAGED_WIDTH
    try:
        shape = json.loads((Path(source).expanduser() / "config.json").read_text(encoding="utf-8"))
        return int(shape.get("hidden_size", 0))
    except (OSError, ValueError, TypeError, AttributeError):
        return 0


def find_facts(task: TaskDraft) -> Facts:
    """Say what is known of a task before anything is trained."""
    return Facts(
        task.name,
        task.config.kind.form,
        max(task.num_rows.get("train", 0), 1),
        len(task.config.labels),
        is_pair=task.config.is_pair,
        largest=task.largest,
        tokens=_long_input(task),
    )


def _key(name: str) -> str:
    """Write a key, in quotes where TOML wants them."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    """Write a word, number, list or table; TOML takes JSON's strings but for two characters."""
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(key)} = {_toml(item)}" for key, item in value.items())
        return "{ " + inner + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):  # 5e-5 rather than 5e-05
        return f"{value:g}".replace("e-0", "e-")
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
