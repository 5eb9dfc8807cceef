"""Draft a recipe from data files, and write it into a folder."""

from __future__ import annotations

import re
import shutil
import tempfile
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from plait.analysis.draft.columns import Choice
from plait.analysis.draft.names import sort_files
from plait.analysis.draft.recipe import choose_settings, write_recipe
from plait.analysis.draft.task import TaskDraft, Wishes, draft_task
from plait.config import RunConfig
from plait.config.checking import validate
from plait.errors import PlaitError, UsageError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.config.choose import Choice as Setting

RECIPE = "recipe.toml"
DATA = "data"
"""Folder beside the recipe for data sets of the Hub."""
MOST_SHOWN = 3
"""Files whose problems an error names."""
_KEYS = ("text", "label", "kind", "labels")


@dataclass(frozen=True)
class Request:
    """The options of the user; everything else is guessed.

    `text`, `label`, `kind` and `labels` have 'VALUE' for every task or 'TASK=VALUE' for one.
    """

    tasks: Sequence[str] = ()
    """NAME=FILE: the task of a file."""
    splits: Sequence[str] = ()
    """SPLIT=FILE: the split of a file."""
    text: Sequence[str] = ()
    label: Sequence[str] = ()
    kind: Sequence[str] = ()
    labels: Sequence[str] = ()
    encoder: str = "packaged"
    separator: str | None = None
    """Between the columns of all files; guessed if None."""


@dataclass
class Draft:
    """A drafted recipe. Use it in a `with` block, which removes downloaded data at its end."""

    tasks: list[TaskDraft]
    left_out: list[str]
    """A sentence for every file that is not used."""
    request: Request
    downloads: tempfile.TemporaryDirectory[str] = field(repr=False)

    def __enter__(self) -> Draft:
        return self

    def __exit__(self, *_: object) -> None:
        self.downloads.cleanup()

    @property
    def choices(self) -> list[Setting]:
        """Settings that follow from the tasks and the encoder."""
        return choose_settings(self.tasks, self.request.encoder)

    def write(self, folder: Path | str, *, overwrite: bool = False) -> list[Path]:
        """Write the recipe, and data of the Hub; return the files written, the recipe first."""
        folder = Path(folder)
        recipe = folder / RECIPE
        check_free(folder, overwrite=overwrite)
        downloads = Path(self.downloads.name).resolve()
        moved = {path: folder.resolve() / DATA / path.name for path in downloads.glob("*.parquet")}
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).lstrip("._-") or "mine"
        text = write_recipe(name, self.tasks, self.left_out, self.request.encoder, moved)
        validate(RunConfig, tomllib.loads(text), str(recipe))
        folder.mkdir(parents=True, exist_ok=True)
        for path, target in moved.items():
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)
        recipe.write_text(text, encoding="utf-8")
        return [recipe, *moved.values()]


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that has a recipe, unless it may be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a folder")
    recipe = folder / RECIPE
    if recipe.exists() and not overwrite:
        raise UsageError(
            f"{recipe} exists already and is not overwritten; choose another folder, or say "
            "--overwrite"
        )


def draft_recipe(files: Sequence[str | Path], request: Request = Request()) -> Draft:  # noqa: B008
    """Read files, sort them into tasks and guess what each task is."""
    downloads = tempfile.TemporaryDirectory(prefix="plait-new-")
    try:
        tasks, problems = _draft_tasks([*map(str, files)], request, Path(downloads.name))
    except BaseException:
        downloads.cleanup()
        raise
    return Draft(tasks, problems, request, downloads)


def _draft_tasks(
    files: Sequence[str], request: Request, downloads: Path
) -> tuple[list[TaskDraft], list[str]]:
    groups, problems = sort_files(
        files, request.tasks, request.splits, request.separator, downloads
    )
    names = [group.name for group in groups]
    said = {key: _by_task(key, getattr(request, key), names) for key in _KEYS} if groups else {}
    tasks = []
    for group in groups:
        try:
            tasks.append(draft_task(group, _read_wishes(group.name, said)))
        except PlaitError as error:
            problems.append(str(error))
    if not tasks:
        more = f"; and {len(problems) - MOST_SHOWN} more" if len(problems) > MOST_SHOWN else ""
        raise UsageError("; ".join(problems[:MOST_SHOWN]) + more or "no data files were given")
    return tasks, problems


def _by_task(key: str, given: Sequence[str], tasks: Sequence[str]) -> dict[str, str]:
    """Return 'VALUE' and 'TASK=VALUE' by task; '' stands for every task."""
    found = {}
    for text in given:
        task, equals, value = text.partition("=")
        if not equals:
            task, value = "", text
        elif task not in tasks:
            raise UsageError(f"--{key} names task {task!r}{suggest(task, tasks)}")
        found[task] = value
    return found


def _read_wishes(task: str, said: Mapping[str, Mapping[str, str]]) -> Wishes:
    own = {key: said[key].get(task, said[key].get("")) for key in _KEYS}

    def listed(key: str) -> tuple[str, ...]:
        return tuple(word.strip() for word in (own[key] or "").split(",") if word.strip())

    text = listed("text")
    if len(text) > 2:
        raise UsageError(f"--text {own['text']!r} names {len(text)} columns; a task has 1 or 2")
    return Wishes(Choice(text, own["label"]), own["kind"], listed("labels"))
