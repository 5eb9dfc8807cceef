"""Write drafts of tasks as a recipe in TOML, every guess explained in a comment."""

from __future__ import annotations

import json
import os
import re
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plait.analysis.draft.names import SPLITS
from plait.config.choose import Choice, Facts, choose, choose_length

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plait.analysis.draft.task import TaskDraft

WIDTH = 100
"""Columns of a line with its comment."""
PACKAGED_WIDTH = 384
TOKENS_PER_WORD = 1.5
"""Of English in a BERT vocabulary; other languages have more."""

HEAD = """\
# Written by `plait new`. Every guess is below with its reason: change what is wrong.
{left_out}
name = {name}
seed = 11711  # order, heads and dropout follow from it
{settings}
{data}
[encoder]
source = {source}
# 95 of 100 inputs have up to about {tokens} tokens{cut}: `plait check` counts them.
max_length = {length}
"""


def write_recipe(
    name: str,
    tasks: Sequence[TaskDraft],
    left_out: Sequence[str],
    encoder: str,
    moved: Mapping[Path, Path],
) -> str:
    """Return the recipe's text; `moved` says where files will lie that are not there yet."""
    paths = [
        moved.get(Path(file.path), Path(file.path))
        for task in tasks
        for split in SPLITS
        for file in getattr(task.config, split)
    ]
    root = _common_folder(paths)
    choices = choose_settings(tasks, encoder)
    tokens = max(map(_long_input, tasks))
    length = choose_length(tokens)
    packaged = "  # all-MiniLM-L6-v2; a Hub id or a folder is another"
    data = "\n[data]\n# Folder that files are relative to; --data DIR moves it.\nroot = {}\n"
    text = HEAD.format(
        left_out="".join(f"{_comment(f'Left out: {sentence}')}\n" for sentence in left_out),
        name=_toml(name),
        settings="".join(f"{line}\n" for line in _chosen(choices, "")),
        data=data.format(_toml(str(root))) if root else "",
        source=_toml(encoder) + packaged * (encoder == "packaged"),
        tokens=tokens,
        cut="; some will be truncated" if tokens > length else "",
        length=length,
    )
    lines = []
    for task in tasks:
        lines += ["", *_task(task, root, moved), *_chosen(choices, f"tasks.{task.name}")]
    lines += ["", "[train]", *_chosen(choices, "train")]
    for choice in choices:
        if choice.key.startswith("stage."):
            lines += ["", _comment(choice.why), f"[{choice.key}]"]
            lines += [f"{key} = {_toml(value)}" for key, value in choice.value.items()]
    return re.sub(r"\n{3,}", "\n\n", text) + "\n".join(lines) + "\n"


def choose_settings(tasks: Sequence[TaskDraft], encoder: str) -> list[Choice]:
    """Choose the settings that follow from the tasks and the encoder."""
    facts = [
        Facts(
            task.name,
            task.config.kind.form,
            max(task.num_rows["train"], 1),
            len(task.config.labels),
            is_pair=task.config.is_pair,
            largest=task.largest,
            tokens=_long_input(task),
        )
        for task in tasks
    ]
    return choose(facts, _find_width(encoder))


def _find_width(source: str) -> int:
    """Return the width of the packaged encoder or of one in a folder; 0 of one on the Hub."""
    if source == "packaged":
        return PACKAGED_WIDTH
    try:
        shape = json.loads((Path(source).expanduser() / "config.json").read_text(encoding="utf-8"))
        return int(shape.get("hidden_size", 0))
    except (OSError, ValueError, TypeError, AttributeError):
        return 0


def _common_folder(paths: Sequence[Path]) -> Path | None:
    """Return the folder that holds all files; None if it does not exist or is a root."""
    try:
        found = Path(os.path.commonpath([path.parent for path in paths]))
    except ValueError:  # on different drives
        return None
    return found if len(found.parts) > 1 else None


def _long_input(task: TaskDraft) -> int:
    """Estimate the 95th percentile of the inputs' length in tokens."""
    columns = [task.files["train"][0].columns[name].values for name in task.roles.text]
    words = sorted(sum(len(text.split()) for text in row) for row in zip(*columns, strict=False))
    if len(words) < 2:
        return 0
    return round(TOKENS_PER_WORD * statistics.quantiles(words, n=20)[-1]) + 3


# --- lines -------------------------------------------------------------------------------


def _task(task: TaskDraft, root: Path | None, moved: Mapping[Path, Path]) -> Iterator[str]:
    yield f"[tasks.{task.name}]"
    yield from (_comment(f"Note: {note}.") for note in task.notes)
    for key, value in task.table.items():
        if key == "labels" and isinstance(value, list) and len(value) <= 12:
            rows = zip(value, task.classes, strict=True)
            yield from ("labels = [", *(f"  {_toml(w)},  # {n:,} rows" for w, n in rows), "]")
            continue
        why = task.guesses[key].why if key in task.guesses else ""
        yield from _explained(f"{key} = {_toml(value)}", why)
    for split in SPLITS:
        if split == "dev" and task.dev_fraction is not None:
            line = f"dev_fraction = {task.dev_fraction:g}"
            yield from _explained(line, task.guesses[split].why)
        if not (files := getattr(task.config, split)):
            continue
        shown = [_file(file.model_dump(exclude_unset=True), root, moved) for file in files]
        value = shown[0] if len(shown) == 1 else shown
        yield from _explained(f"{split} = {_toml(value)}", task.guesses[split].why)
    if task.skipped:
        yield 'bad_rows = "skip"  # those that cannot be used, as noted above'


def _file(table: dict[str, Any], root: Path | None, moved: Mapping[Path, Path]) -> Any:
    """Return a file as a recipe has it: its path, or a table."""
    path = moved.get(Path(table["path"]), Path(table["path"]))
    table["path"] = path.relative_to(root).as_posix() if root is not None else str(path)
    for column, values in table.get("where", {}).items():
        table["where"] = {column: values[0] if len(values) == 1 else values}
    return table if len(table) > 1 else table["path"]


def _chosen(choices: Sequence[Choice], section: str) -> Iterator[str]:
    """Yield the chosen settings of a table, each with its reason."""
    for choice in choices:
        place, _, key = choice.key.rpartition(".")
        if place == section:
            yield from _explained(f"{key} = {_toml(choice.value)}", choice.why)


def _explained(line: str, why: str) -> Iterator[str]:
    """Yield a setting and its reason, on one line where there is room."""
    comment = _comment(why)
    if not why:
        yield line
    elif len(line) + len(comment) + 2 <= WIDTH:
        yield f"{line}  {comment}"
    else:
        yield from (comment, line)


def _comment(text: str) -> str:
    """Return a comment on one line: names of files and columns may hold line breaks."""
    shown = "".join(letter if letter.isprintable() else " " for letter in text)
    return f"# {' '.join(shown.split())}"


def _toml(value: Any) -> str:
    """Write a text, number, list or table; TOML takes JSON's strings but for two characters."""
    if isinstance(value, dict):
        keys = {key: key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml(key) for key in value}
        return "{ " + ", ".join(f"{keys[key]} = {_toml(value[key])}" for key in value) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):  # 5e-5 rather than 5e-05
        return f"{value:g}".replace("e-0", "e-")
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
