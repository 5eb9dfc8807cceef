"""A task's settings and the name of a split become the rows to use, file after file."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow.compute as pc

from plait.data.augmentations import AUGMENTATIONS, Augmentation, SetAugmentation, add_rows
from plait.data.digests import file_digest
from plait.data.files import open_source
from plait.data.fingerprints import fingerprint
from plait.data.folders import find_files
from plait.data.rows import NUM_PLACES, FileReport, RowReader, Rows, join_rows
from plait.data.source import Columns
from plait.errors import DataError, NoRowsError, RecipeError
from plait.tasks import TaskSpec
from plait.tasks.reading import LabelError, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from plait.config import BadRows, DropOverlap, DropRows, FileConfig, TaskConfig
    from plait.data.fingerprints import Hashes
    from plait.data.heldout import HeldOut

Progress = Callable[[int, int, int], None]
"""Called with rows done, bytes done and bytes in all."""

SplitName = Literal["train", "dev", "test", "unlabelled"]

SHARE_SALT = np.uint64(0x5851F42D4C957F2D)
"""Makes the rows of `dev_fraction` independent of those of a fold."""

NOT_ROWS = {"inputs", "text", "threshold", "both_orders"}
"""Settings of a task that its rows do not depend on."""

_LATER = {"constant", "scale", "where"}
"""Settings of a file that came later: where unset, entries made before keep their names."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a row stands, for a person who wants to mend it."""

    path: Path
    number: int
    """Counted from 1; where there is a header, it is line 1."""
    unit: str = "line"
    """Line, or row where a file has no lines."""

    def __str__(self) -> str:
        return f"{self.path}, {self.unit} {self.number}"


@dataclass(frozen=True, slots=True)
class _File:
    """One file of a split, its task's settings filled in."""

    config: FileConfig
    """As if the recipe named it by itself."""
    path: Path
    entry: int
    """Which path of the recipe stands for it, maybe among others."""
    columns: Columns
    label_map: dict[str, float]
    drops: DropRows = False
    """Whether rows of it that dev or test has are left out, and whether a text is enough."""
    drops_added: DropRows = False
    """Whether such rows are that an augmentation makes of its rows."""


@dataclass(frozen=True, slots=True)
class Extension:
    """The result of an augmentation that uses all rows at once."""

    name: str
    added: int
    counts: dict[str, int]
    """Numbers of rows found and left out, by reason."""

    def __str__(self) -> str:
        parts = ", ".join(f"{n:,} {what}" for what, n in self.counts.items() if n)
        return f"{self.added:,} more by {self.name}" + (f" ({parts})" if parts else "")


@dataclass
class Split:
    """The rows of one split of a task: its files, how they are read, which rows are sampled."""

    task_name: str
    task: TaskConfig
    split: SplitName
    root: Path | None
    bad_rows: BadRows
    seed: int
    labelled: bool
    hint: str = ""
    fold: tuple[int, int] | None = None
    """(1, 5): the training rows are split into 5 folds; the first is dev, the others are train."""
    drop_overlap: DropOverlap = False
    """The recipe's setting, if the task has none."""
    held_out: HeldOut | None = None
    """The texts of dev and test; needed for `drop_overlap` and for augmentations."""
    grouped: bool = False
    """Whether rows include their group; always true for folds."""
    most_places: int = NUM_PLACES
    """Maximum number of skipped rows whose line a report names."""
    reports: list[FileReport] = field(default_factory=list, init=False)
    """One report per file, after reading."""
    extensions: list[Extension] = field(default_factory=list, init=False)
    """Results of augmentations that use all rows."""

    def __post_init__(self) -> None:
        self.trains = self.split == "unlabelled" or (self.split == "train" and self.labelled)
        # Predictions need every row, even one with an empty text.
        keep = not (self.labelled or self.trains)
        self.bad_rows = "error" if keep else (self.task.bad_rows or self.bad_rows)
        if self.split in ("test", "unlabelled"):
            self.fold = None
        self.fraction = self.task.held_out_fraction if self.split in ("train", "dev") else None
        is_dealt = self.fold is not None or self.fraction is not None
        self.source: SplitName = "train" if is_dealt else self.split
        self.entries: tuple[FileConfig, ...] = getattr(self.task, self.source)
        if not self.entries:
            raise RecipeError(f"task {self.task_name!r} has no {self.split} files")
        self.files = [file for entry in range(len(self.entries)) for file in self._resolve(entry)]
        self._refuse_twice()
        where = f"tasks.{self.task_name}.augment"
        # Whoever reads a split without its labels wants its rows back, and no others.
        tables = self.task.augment if self.split == "train" and self.labelled else ()
        self.augmentations = [
            (table["name"], build_augmentation(table, self.task, f"{where}.{i}"))
            for i, table in enumerate(tables)
        ]
        if self._leans_on_others and self.held_out is None:
            raise ValueError(f"task {self.task_name!r}: what dev and test have must be given")
        if self.trains:
            self._refuse_held_out()

    def _refuse_twice(self) -> None:
        """Refuse folders and patterns that take in a file of which the split has the rows already.

        A file that is named twice is meant twice. So is a folder or a pattern that is there twice
        with other settings, such as another column of texts.
        """
        before: dict[Path, list[_File]] = {}
        for file in self.files:
            for other in before.setdefault(file.path.resolve(), []):
                if not self._is_meant(file, other):
                    raise RecipeError(self._tell_twice(other, file))
            before[file.path.resolve()].append(file)

    def _is_meant(self, file: _File, other: _File) -> bool:
        one, two = self.entries[file.entry], self.entries[other.entry]
        are_named = file.config.path == one.path and other.config.path == two.path
        return file.entry != other.entry and (are_named or (one.path == two.path and one != two))

    def _tell_twice(self, one: _File, two: _File) -> str:
        first, second = self.entries[one.entry].path, self.entries[two.entry].path
        message = f"{first} and {second} both name {two.config.path}"
        if one.entry == two.entry:
            message = (
                f"{first} contains {one.config.path} and {two.config.path}, which are the same file"
            )
        return (
            f"tasks.{self.task_name}.{self.source}: {message}, so its rows would be read twice; "
            "remove one, or choose a pattern that matches it once"
        )

    def _refuse_held_out(self) -> None:
        """Raise RecipeError if a folder or pattern of train files matches a dev or test file."""
        for file in self.files:
            pattern = self.entries[file.entry].path
            if file.config.path == pattern or self.held_out is None:
                continue
            if file.path.resolve() in self.held_out.files:
                where = f"tasks.{self.task_name}.{self.split}"
                raise RecipeError(
                    f"{where}: {pattern} matches {file.config.path}, which is a dev or test "
                    "file; choose a pattern that excludes it, or move it"
                )

    @property
    def _leans_on_others(self) -> bool:
        """Whether the rows depend on those of dev and test."""
        sets = (isinstance(part, SetAugmentation) for _, part in self.augmentations)
        drops = (file.drops or (file.drops_added and self.augmentations) for file in self.files)
        return any(sets) or any(drops)

    def _resolve(self, entry: int) -> list[_File]:
        """Find the files that a path of the recipe stands for."""
        task, config = self.task, self.entries[entry]
        found = find_files(config.path, self.root, self.hint)
        text = config.text or task.text
        if len(text) != len(task.text):
            raise RecipeError(
                f"tasks.{self.task_name}: {config.path} names {len(text)} text columns, the task "
                f"{len(task.text)}"
            )
        # id = "" means that the file has no ids; unlabelled rows need no ids
        own = None if self.split == "unlabelled" else task.id
        name = own if config.id is None else config.id
        where = tuple(config.where or ())
        group = task.group if config.group is None else config.group
        columns = Columns(
            text,
            self._label_columns(config),
            name or None,
            where,
            (group or None) if self.fold or self.fraction or self.grouped else None,
        )
        label_map = task.label_map if config.label_map is None else config.label_map
        said = (config.drop_overlap, task.drop_overlap, self.drop_overlap)
        mode: DropOverlap = next(value for value in said if value is not None)
        if self.split == "unlabelled" and mode != "texts":
            mode = True  # published scores do not depend on unlabelled rows
        elif not self.trains:
            mode = False
        how: DropRows = mode if mode == "texts" else bool(mode)
        return [
            _File(
                config.model_copy(update={"path": name}),
                path,
                entry,
                columns,
                label_map,
                how if mode != "added" or entry > 0 else False,
                how,
            )
            for name, path in found.items()
        ]

    def _label_columns(self, config: FileConfig) -> tuple[str, ...]:
        task, where = self.task, f"tasks.{self.task_name}"
        label = config.label or task.label
        if not self.labelled or config.constant is not None:
            return ()
        if label is None:
            raise RecipeError(f"{where}.label must name the column of the label")
        if isinstance(label, str):
            return (label,)
        try:
            task.kind.check_columns(len(label))
        except ValueError as error:
            raise RecipeError(f"{where}: {config.path}: {error}") from error
        return label

    def describe(self) -> dict[str, Any]:
        """Return everything the rows depend on, to name a cache entry by."""
        task = self.task
        described: dict[str, Any] = {
            "files": [
                {"content": _digest(file.path), "label_map": file.label_map, "id": file.columns.id}
                | file.config.model_dump(
                    exclude={"label_map", "id", *_LATER, "drop_overlap", "group"}
                )
                | {"text": file.columns.text, "label": _as_written(file.columns.labels)}
                | file.config.model_dump(include=_LATER, exclude_none=True)
                for file in self.files
            ],
            "task": task.model_dump(include=set(TaskSpec.model_fields) - NOT_ROWS),
            "bad_rows": self.bad_rows,
            "labelled": self.labelled,
            "draw": [self.task_name, self.source, self.seed, *self._share()]
            if self._draws()
            else None,
        }
        if self._draws() and len(self.files) > len(self.entries):
            counts = Counter(file.entry for file in self.files)
            described["together"] = [[e.path, counts[i]] for i, e in enumerate(self.entries)]
        if self.augmentations:  # entries made without any keep their names
            parts = [(name, part.describe()) for name, part in self.augmentations]
            described["augment"] = [self.task_name, self.seed, parts]
        if self._leans_on_others:
            assert self.held_out is not None
            described["held_out"] = self.held_out.key
            described["drops"] = [[file.drops, file.drops_added] for file in self.files]
        if task.kind.columns_name_labels:
            described["separator"] = task.label_separator
        if self.fold:
            described["fold"] = [self.split, self.seed, *self.fold]
        if self.fraction:
            described["dev_fraction"] = [self.split, self.fraction]
        # Groups are read only where rows are dealt, unless they are asked for.
        groups = [file.columns.group for file in self.files]
        if (self.fold or self.fraction) and any(groups):
            described["groups"] = groups
        return described

    def rows(self, progress: Progress | None = None) -> Iterator[Rows]:
        """Read, check and draw the rows, a chunk at a time, in the order of the files.

        What augmentations make of a chunk follows it; what they make of all rows comes last.
        """
        self.reports.clear()
        self.extensions.clear()
        sizes = [file.path.stat().st_size for file in self.files]
        # If rows are sampled, a first pass counts them.
        before = sum(sizes) if self._draws() else 0
        total, num_rows = before + sum(sizes), 0
        parts = [
            (name, part, self._generator(f"augment {i}"))
            for i, (name, part) in enumerate(self.augmentations)
        ]
        extends = any(isinstance(part, SetAugmentation) for _, part, _ in parts)
        every: list[Rows] = []
        for index, (file, chosen) in enumerate(
            zip(self.files, self._choose(total, progress), strict=True)
        ):
            reader = self._read(file)
            added: Counter[str] = Counter()
            num_held_out = 0
            for drawn in _take_chosen(reader, chosen):
                dealt = replace(self._deal(drawn), file=index)
                rows = self._drop(dealt, file.drops)
                num_held_out += len(dealt) - len(rows)
                num_rows += len(rows)
                if extends:
                    every.append(rows)
                yield rows
                for name, part, generator in parts:
                    if not isinstance(part, Augmentation):
                        continue
                    if (made := add_rows(rows, name, part, generator)) is not None:
                        more = self._drop(made, file.drops_added)
                        num_held_out += len(made) - len(more)
                        added[name] += len(more)
                        num_rows += len(more)
                        yield more
                if progress is not None:
                    progress(num_rows, before + rows.position, total)
            before += sizes[index]
            report = replace(reader.report(), added=dict(added), held_out=num_held_out)
            self.reports.append(report)
        if num_rows == 0:
            reasons = "; ".join(f"{r}: {r.first}" if r.first else str(r) for r in self.reports)
            raise NoRowsError(
                f"task {self.task_name!r} has no {self.split} rows to use ({reasons})"
            )
        for name, part, generator in parts:
            if isinstance(part, SetAugmentation):
                yield from self._extend(every, name, part, generator)

    def _drop(self, rows: Rows, how: DropRows) -> Rows:
        """Leave out the rows that dev or test has, or none."""
        if not how:
            return rows
        assert self.held_out is not None
        held = self.held_out.has_rows(rows.texts, by_text=how == "texts")
        return rows.take(np.flatnonzero(~held)) if held.any() else rows

    def _extend(
        self,
        chunks: list[Rows],
        name: str,
        part: SetAugmentation,
        generator: np.random.Generator,
    ) -> Iterator[Rows]:
        """Give the rows an augmentation makes of all rows, those of one file at a time."""
        assert self.held_out is not None
        every = join_rows(chunks)
        files = np.repeat([rows.file for rows in chunks], [len(rows) for rows in chunks])
        made = part(every, self.held_out, generator)
        self.extensions.append(Extension(name, len(made), made.counts))
        for file in np.unique(files[made.sources]).tolist():
            yield made.rows(every, name, np.flatnonzero(files[made.sources] == file), file)

    def places(self, wanted: Sequence[int]) -> list[Place]:
        """Say where rows stand, each given by its number among all that `rows` yields.

        A row that was added stands where the row does that it was made of.
        """
        order = np.unique(np.asarray(wanted, np.int64))
        numbers: dict[int, dict[int, int]] = {}  # by file, then by row
        done = 0
        for rows in self.rows():
            low, high = np.searchsorted(order, [done, done + len(rows)])
            file = numbers.setdefault(rows.file, {})
            file.update((int(row), int(rows.numbers[row - done])) for row in order[low:high])
            done += len(rows)
        found: dict[int, Place] = {}
        for file_number, there in numbers.items():
            source = self._read(self.files[file_number]).source
            source.names()  # settles the separator
            lines = source.lines(list(there.values())) if there else []
            for row, line in zip(there, lines, strict=True):
                found[row] = Place(source.path, line, source.unit)
        return [found[row] for row in wanted]

    def _deal(self, rows: Rows) -> Rows:
        """Keep the rows of this side of `dev_fraction` and of the fold.

        A row's side follows from its texts, or from the name of its group, so that equal rows are
        never on both sides. Which fold it is in depends on the seed too. With folds, dev and train
        are both taken from the rows that `dev_fraction` leaves.
        """
        if self.fold is None and self.fraction is None:
            return rows
        keys = name_groups(rows)
        kept = np.ones(len(rows), bool)
        if self.fraction is not None:
            held = _mix(keys ^ SHARE_SALT) < np.uint64(self.fraction * 2**32)
            kept = held if self.split == "dev" and self.fold is None else ~held
        if self.fold is not None:
            number, count = self.fold
            # Mixed with the seed: fingerprints alone would deal alike under every seed.
            salt = np.random.SeedSequence([self.seed, count]).generate_state(1, np.uint64)
            held = _mix(keys ^ salt) % np.uint64(count) == number - 1
            kept &= held if self.split == "dev" else ~held
        return rows.take(np.flatnonzero(kept))

    def _read(self, file: _File) -> RowReader:
        config = file.config
        source = open_source(file.path, separator=config.separator, quoting=config.quoting)
        labels = None
        if self.labelled:
            labels = self.task.build_reader(file.columns.labels, file.label_map, config.scale)
        try:
            return RowReader(
                source,
                file.columns,
                labels,
                self.bad_rows,
                keep_empty=not (self.labelled or self.trains),  # each is wanted back
                most_places=self.most_places,
                constant=plain_text(config.constant),
                where={
                    column: {str(plain_text(value)) for value in values}
                    for column, values in (config.where or {}).items()
                },
            )
        except LabelError as error:
            raise RecipeError(
                f"tasks.{self.task_name}: {config.path}: constant = {config.constant!r}: {error}"
            ) from error

    # --- drawing ---------------------------------------------------------------------------

    def _share(self) -> tuple[int | None, float | None]:
        """Return the task's own count and fraction, which are for training rows alone."""
        return (self.task.count, self.task.fraction) if self.source == "train" else (None, None)

    def _draws(self) -> bool:
        shares = [self._share(), *((entry.count, entry.fraction) for entry in self.entries)]
        return any(value is not None for share in shares for value in share)

    def _choose(self, total: int, progress: Progress | None) -> list[npt.NDArray[np.int64] | None]:
        """Return the numbers of the good rows to take of each file; None for all of them."""
        if not self._draws():
            return [None] * len(self.files)
        counts, before = [], 0
        for file in self.files:
            # rows can only be drawn out of a known number: one more reading, without tokenising
            counts.append(0)
            for rows in self._read(file):
                counts[-1] += len(rows)
                if progress is not None:
                    progress(0, before + rows.position, total)
            before += file.path.stat().st_size
        chosen = []
        for entry, config in enumerate(self.entries):
            files = [file for file in self.files if file.entry == entry]
            totals = [n for file, n in zip(self.files, counts, strict=True) if file.entry == entry]
            what = str(files[0].path) if len(files) == 1 else config.path
            share = (config.count, config.fraction)
            chosen += _deal_out(self._draw(sum(totals), share, config.path, what), totals)
        counts = [len(rows) for rows in chosen]
        kept = self._draw(sum(counts), self._share(), "", f"task {self.task_name!r}")
        return [rows[own] for rows, own in zip(chosen, _deal_out(kept, counts), strict=True)]

    def _draw(
        self, total: int, share: tuple[int | None, float | None], salt: str, what: str
    ) -> npt.NDArray[np.int64]:
        count, fraction = share
        if count is not None and fraction is not None:
            raise RecipeError(f"{what}: give count or fraction, not both")
        if fraction is not None:
            count = max(1, round(fraction * total))
        if count is None:
            return np.arange(total)
        if count > total:
            raise DataError(
                f"{what}: count = {count:,} is more than the {total:,} {self.split} rows that exist"
            )
        return np.sort(self._generator(salt).choice(total, count, replace=False, shuffle=False))

    def _generator(self, salt: str) -> np.random.Generator:
        digest = hashlib.blake2b(f"{self.task_name}\0{self.source}\0{salt}".encode()).digest()
        return np.random.default_rng([self.seed, *np.frombuffer(digest[:16], np.uint32)])


def _mix(keys: Hashes) -> Hashes:
    """Return 32 well-mixed bits of each key."""
    return (keys * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)


def name_groups(rows: Rows) -> Hashes:
    """Return a key per row that those have in common which belong together."""
    own = fingerprint(rows.texts)
    if rows.groups is None:
        return own
    is_named = pc.not_equal(rows.groups, "").to_numpy(zero_copy_only=False)
    keys: Hashes = np.where(is_named, fingerprint((rows.groups,)), own)
    return keys


def build_augmentation(
    table: dict[str, Any], task: TaskSpec, where: str
) -> Augmentation | SetAugmentation:
    """Make an augmentation of a task's rows; `where` is the recipe key, for the error."""
    part = AUGMENTATIONS.build(table, where)
    try:
        part.check(task)
    except ValueError as error:
        raise RecipeError(f"{where}: {error}") from error
    return part


def _take_chosen(reader: RowReader, chosen: npt.NDArray[np.int64] | None) -> Iterator[Rows]:
    """Give the rows of a file whose numbers, among its good ones, are chosen; all where None."""
    done = 0
    for rows in reader:
        if chosen is None:
            yield rows
            continue
        low, high = np.searchsorted(chosen, [done, done + len(rows)])
        yield rows.take(chosen[low:high] - done)
        done += len(rows)


def _deal_out(numbers: npt.NDArray[np.int64], counts: Sequence[int]) -> list[npt.NDArray[np.int64]]:
    """Split rising numbers of rows end to end into those of each file, counted from its first."""
    starts = np.cumsum([0, *counts])
    ends = np.searchsorted(numbers, starts)
    return [
        numbers[low:high] - start
        for low, high, start in zip(ends[:-1], ends[1:], starts[:-1], strict=True)
    ]


def _as_written(columns: tuple[str, ...]) -> str | tuple[str, ...] | None:
    """Name one column by itself, so that entries made when there was but one keep their names."""
    return columns if len(columns) > 1 else next(iter(columns), None)


def _digest(path: Path) -> str:
    try:
        return file_digest(path)
    except OSError as error:
        raise DataError(f"cannot be read: {error}", path=path) from error
