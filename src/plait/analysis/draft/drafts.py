"""Files and what the user said of them become a Draft; a Draft becomes a folder with a recipe."""

from __future__ import annotations

import csv
import re
import tempfile
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from plait.analysis.draft.files import LookedAt, Reading, look_at
from plait.analysis.draft.held_out import Pool, bands, draw_dev
from plait.analysis.draft.hub import PREFIX, fetch
from plait.analysis.draft.names import read_name
from plait.analysis.draft.recipe import Placed, choose_settings, write_recipe
from plait.analysis.draft.roles import Wanted
from plait.analysis.draft.tasks import SPLITS, Row, TaskDraft, Wishes, draft_task
from plait.config import RunConfig
from plait.config.checking import validate
from plait.data.fingerprints import fingerprint
from plait.errors import DataError, PlaitError, UsageError, suggest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.config.choose import Choice
    from plait.data import SplitName

RECIPE = "recipe.toml"
DATA = "data"
"""Folder, beside the recipe, of files that had to be made."""
SEED = 11711


@dataclass(frozen=True)
class Request:
    """What the user said; everything is guessed where it is empty.

    Values of `text`, `label`, `id`, `kind`, `labels` and `range` are 'VALUE' for every task or
    'TASK=VALUE' for one.
    """

    tasks: Sequence[str] = ()
    """NAME=FILE: which task a file is of."""
    splits: Sequence[str] = ()
    """SPLIT=FILE: which split a file is."""
    text: Sequence[str] = ()
    label: Sequence[str] = ()
    id: Sequence[str] = ()
    kind: Sequence[str] = ()
    labels: Sequence[str] = ()
    range: Sequence[str] = ()
    dev_fraction: float | None = None
    seed: int = SEED
    encoder: str = "packaged"
    reading: Reading = field(default_factory=Reading)


@dataclass
class Draft:
    """A recipe, guessed and not yet written. A context: copies of files go when it ends."""

    tasks: list[TaskDraft]
    left_out: list[str]
    """A sentence for every file that no task could be made of."""
    request: Request
    scratch: tempfile.TemporaryDirectory[str] = field(repr=False)

    def __enter__(self) -> Draft:
        return self

    @property
    def choices(self) -> list[Choice]:
        """Return the settings that follow from the tasks and the encoder."""
        return choose_settings(self.tasks, self.request.encoder)

    def __exit__(self, *_: object) -> None:
        self.scratch.cleanup()

    def write(self, folder: Path | str, *, overwrite: bool = False) -> list[Path]:
        """Write the recipe and the files it needs; return them, the recipe first."""
        folder = Path(folder)
        recipe = folder / RECIPE
        check_free(folder, overwrite=overwrite)
        made: dict[Path, tuple[TaskDraft, list[Row]]] = {}
        files: dict[str, dict[SplitName, list[Placed]]] = {}
        dealt = _deal(self.tasks, self.request.seed)
        for task in self.tasks:
            rows = dealt[task.name]
            files[task.name] = {}
            for split in SPLITS:
                if split in rows:
                    path = folder / DATA / f"{task.name}-{split}.csv"
                    made[path] = (task, rows[split])
                    files[task.name][split] = [Placed(path)]
                elif task.is_chosen and split in task.split_words:
                    column, words = str(task.roles.split), task.split_words[split]
                    where = {column: words[0] if len(words) == 1 else words}
                    files[task.name][split] = [
                        Placed(f.given, f, where) for f in task.files["train"]
                    ]
                elif task.files[split] and not task.roles.split:
                    files[task.name][split] = [Placed(f.given, f) for f in task.files[split]]
        self._check_targets([*made], overwrite=overwrite)
        text = write_recipe(
            _recipe_name(folder),
            self.tasks,
            files,
            self.left_out,
            encoder=self.request.encoder,
            seed=self.request.seed,
        )
        validate(RunConfig, tomllib.loads(text), str(recipe))
        folder.mkdir(parents=True, exist_ok=True)
        for path, (task, some) in made.items():
            path.parent.mkdir(exist_ok=True)
            _write_rows(path, task, some)
        recipe.write_text(text, encoding="utf-8")
        return [recipe, *made]

    def _check_targets(self, made: list[Path], *, overwrite: bool) -> None:
        own = {f.given.resolve() for t in self.tasks for some in t.files.values() for f in some}
        for path in made:
            if path.resolve() in own:
                raise UsageError(f"{path} is among the files given; choose another folder")
            if path.exists() and not overwrite:
                raise UsageError(
                    f"{path} exists already and is not overwritten; choose another folder, "
                    "or say --overwrite"
                )


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that has a recipe, unless it may be overwritten."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file, not a folder")
    recipe = folder / RECIPE
    if recipe.exists() and not overwrite:
        raise UsageError(
            f"{recipe} exists already and is not overwritten; choose another folder, "
            "or say --overwrite"
        )


def draft_recipe(files: Sequence[str | Path], request: Request = Request()) -> Draft:  # noqa: B008
    """Look at files, sort them into tasks and guess what each task is."""
    if not (request.dev_fraction is None or 0 <= request.dev_fraction < 1):
        raise UsageError(f"the dev fraction {request.dev_fraction} is not between 0 and 1")
    scratch = tempfile.TemporaryDirectory(prefix="plait-new-")
    try:
        return _draft(files, request, scratch)
    except BaseException:
        scratch.cleanup()
        raise


def _draft(
    files: Sequence[str | Path], request: Request, scratch: tempfile.TemporaryDirectory[str]
) -> Draft:
    folder = Path(scratch.name)
    groups, problems = _sort(_expand(files, folder, request), request, folder)
    if not groups:
        raise UsageError(_join(problems) or "no data files were given")
    names = [group.name for group in groups]
    wished = {key: _by_task(key, getattr(request, key), names) for key in _KEYS}
    tasks = []
    for group in groups:
        try:
            wishes = _wishes(group.name, wished, request)
            tasks.append(draft_task(group.name, group.files, wishes, group.why))
        except PlaitError as error:
            problems.append(str(error))
    if not tasks:
        raise UsageError(_join(problems))
    return Draft(tasks, problems, request, scratch)


MOST_TOLD = 3
"""Files of which it is said why no task can be made of them, where none is left."""


def _join(problems: Sequence[str]) -> str:
    more = f"; and {len(problems) - MOST_TOLD} more" if len(problems) > MOST_TOLD else ""
    return "; ".join(problems[:MOST_TOLD]) + more


# --- which file is what ------------------------------------------------------------------


@dataclass(frozen=True)
class _Input:
    """A file to look at, and what the user called it."""

    path: Path
    key: str
    """The resolved path, or the name of a data set of the Hub."""

    @property
    def is_fetched(self) -> bool:
        """Whether the file is not the user's."""
        return self.key.startswith(PREFIX)


@dataclass
class _Group:
    """Files of one task by split, and why they are taken for it."""

    name: str
    files: dict[SplitName, list[LookedAt]] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)

    def add(self, split: SplitName, file: LookedAt, why: str) -> None:
        """Take a file for a split."""
        self.files.setdefault(split, []).append(file)
        self.why.setdefault(split, why)


def _key(file: str) -> str:
    return file if file.startswith(PREFIX) else str(Path(file).expanduser().resolve())


def _expand(files: Sequence[str | Path], folder: Path, request: Request) -> list[_Input]:
    """Return every file there is to look at, once each; data sets of the Hub become files."""
    named = [_pair("--task", text, "NAME=FILE")[1] for text in request.tasks]
    named += [_pair("--split", text, "SPLIT=FILE")[1] for text in request.splits]
    found: dict[str, list[_Input]] = {}
    for file in [*map(str, files), *named]:
        key = _key(file)
        if key in found:
            continue
        paths = (
            fetch(file, folder / "hub") if file.startswith(PREFIX) else [Path(file).expanduser()]
        )
        found[key] = [_Input(path, key) for path in paths]
    return [given for some in found.values() for given in some]


def _pair(option: str, text: str, form: str) -> tuple[str, str]:
    first, equals, second = text.partition("=")
    if not (equals and first and second):
        raise UsageError(f"{option} {text!r} is not of the form {form}")
    return first, second


def _told_tasks(request: Request) -> dict[str, list[str]]:
    """Return the tasks that the user named for a file; one file may serve several."""
    told: dict[str, list[str]] = {}
    for text in request.tasks:
        name, file = _pair("--task", text, "NAME=FILE")
        if not re.fullmatch(r"[A-Za-z0-9_-]+", name):
            raise UsageError(f"--task {text!r}: a name has letters, digits, - and _ alone")
        told.setdefault(_key(file), []).append(name)
    return told


def _told_splits(request: Request) -> dict[str, SplitName]:
    told: dict[str, SplitName] = {}
    for text in request.splits:
        word, file = _pair("--split", text, "SPLIT=FILE")
        split = next((split for split in SPLITS if split == word), None)
        if split is None:
            raise UsageError(f"--split {text!r}: a split is train, dev or test")
        told[_key(file)] = split
    return told


def _look(
    inputs: Sequence[_Input], request: Request, folder: Path
) -> tuple[list[tuple[_Input, LookedAt]], list[str]]:
    """Look at every file; one that cannot be read becomes a sentence."""
    looked, problems = [], []
    folder.mkdir()
    for given in inputs:
        try:
            file = look_at(given.path, request.reading, folder)
        except DataError as error:
            problems.append(str(error))
            continue
        # What was fetched lies among things that go, so its rows are written again.
        looked.append(
            (given, replace(file, given=Path(file.path.name)) if given.is_fetched else file)
        )
    return looked, problems


def _sort(
    inputs: Sequence[_Input], request: Request, folder: Path
) -> tuple[list[_Group], list[str]]:
    """Sort files into tasks and splits by their names, or as told."""
    tasks, splits = _told_tasks(request), _told_splits(request)
    looked, problems = _look(inputs, request, folder / "mended")
    groups: dict[str, _Group] = {}
    unmarked: list[tuple[str, _Input, LookedAt]] = []
    for given, file in looked:
        named = read_name(given.path)
        for task in tasks.get(given.key, [named.task]):
            group = groups.setdefault(task, _Group(task))
            if given.key in splits:
                group.add(splits[given.key], file, "as given")
            elif named.split is not None:
                group.add(named.split, file, f"{named.word!r} in its name")
            else:
                unmarked.append((task, given, file))
    marked = {name for name, group in groups.items() if "train" in group.files}
    for task, given, file in unmarked:
        if task in marked and given.key not in tasks:
            problems.append(
                f"{file.given}: task {task!r} has a training file of that name already, which it "
                f"may hold once more; take it as well with --split train={file.given}"
            )
        else:
            groups[task].add("train", file, "no split in its name")
    return [group for group in groups.values() if group.files], problems


# --- what the user said ------------------------------------------------------------------

_KEYS = ("text", "label", "id", "kind", "labels", "range")


def _by_task(key: str, given: Sequence[str], tasks: Sequence[str]) -> dict[str, str]:
    """Sort 'VALUE' and 'TASK=VALUE' by task; '' stands for every task."""
    found = {}
    for text in given:
        task, equals, value = text.partition("=")
        if not equals:
            task, value = "", text
        elif task not in tasks:
            raise UsageError(f"--{key} names task {task!r}{suggest(task, tasks)}")
        found[task] = value
    return found


def _wishes(task: str, wished: Mapping[str, Mapping[str, str]], request: Request) -> Wishes:
    said = {key: wished[key].get(task, wished[key].get("")) for key in _KEYS}

    def listed(key: str) -> tuple[str, ...]:
        return tuple(word.strip() for word in (said[key] or "").split(",") if word.strip())

    text = listed("text")
    if len(text) > 2:
        raise UsageError(f"--text {said['text']!r} names {len(text)} columns; a task has 1 or 2")
    ends = None
    if said["range"]:
        try:
            low, high = map(float, listed("range"))
        except ValueError as error:
            raise UsageError(f"--range {said['range']!r} is not of the form LOW,HIGH") from error
        ends = (low, high)
    columns = Wanted(text, said["label"] or None, said["id"])
    return Wishes(columns, said["kind"], listed("labels"), ends, request.dev_fraction)


# --- rows that are written again ---------------------------------------------------------


Dealt = dict["SplitName", list[Row]]
"""Rows of a task that have to be written, by split."""


def _deal(tasks: Sequence[TaskDraft], seed: int) -> dict[str, Dealt]:
    """Return the rows of each task that have to be written, dev drawn where there is none."""
    dealt = {task.name: _read_written(task) for task in tasks}
    drawn = [task for task in tasks if task.dev_fraction is not None]
    pools = [_pool(task, dealt[task.name]["train"]) for task in drawn]
    for task, is_dev in zip(drawn, draw_dev(pools, seed), strict=True):
        rows = dealt[task.name]["train"]
        if not is_dev.any() or is_dev.all():
            raise DataError(
                f"{task.name}: none of its {len(rows)} training rows can be held out for dev, as "
                "each class has too few different texts; add rows, or name a dev file with "
                "--split dev=FILE"
            )
        dealt[task.name]["train"] = [rows[i] for i in np.flatnonzero(~is_dev)]
        dealt[task.name]["dev"] = [rows[i] for i in np.flatnonzero(is_dev)]
    return dealt


def _read_written(task: TaskDraft) -> Dealt:
    written = task.written
    dealt: Dealt = {}
    sources: Sequence[SplitName] = ("train",) if task.roles.split else SPLITS
    for source in sources if written else ():
        if source in written or task.roles.split:
            for row in task.read(source):
                dealt.setdefault(row.split, []).append(row)
    return dealt


def _pool(task: TaskDraft, rows: Sequence[Row]) -> Pool:
    assert task.dev_fraction is not None
    columns = zip(*(row.texts for row in rows), strict=True)
    prints = fingerprint([pa.array(list(column), pa.string()) for column in columns])
    values = [row.value for row in rows]
    strata: list[Any] = bands(values) if task.config.kind.form == "number" else values
    return Pool(strata, prints, task.dev_fraction)


def _write_rows(path: Path, task: TaskDraft, rows: Sequence[Row]) -> None:
    """Write rows as CSV in UTF-8: the columns that the recipe names, and no others."""
    roles = task.roles
    has_label = any(any(row.label) for row in rows)
    label = roles.label if has_label else ()
    header = [*([roles.id] if roles.id else []), *roles.text, *label]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for number, row in enumerate(rows):
            name = [row.id if row.id is not None else str(number)] if roles.id else []
            writer.writerow([*name, *row.texts, *((row.label or [""] * len(label)) * has_label)])


def _recipe_name(folder: Path) -> str:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).lstrip("._-")
    return name or "mine"
