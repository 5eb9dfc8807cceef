"""Read the splits of a recipe as training reads them, with every row's place in its file."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from plait.data import find_files, find_held_out, find_root, open_source
from plait.data.fingerprints import fingerprint
from plait.data.loading import has_rows
from plait.data.split import Split, name_groups
from plait.errors import DataError, UsageError, counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from plait.config import RunConfig, TaskConfig
    from plait.data import FileReport, SplitName
    from plait.data.loading import Progress
    from plait.data.source import Source

    Numbers = Sequence[int] | npt.NDArray[np.int64]

SPLITS: tuple[SplitName, ...] = ("train", "unlabelled", "dev", "test")

Level = Literal["stop", "warning", "note"]
"""Training would stop; scores or the model suffer; worth knowing."""


@dataclass(frozen=True, slots=True)
class Place:
    """A row in a file."""

    file: str
    line: int
    """From 1, the header included; the row in files without lines, such as Parquet."""
    detail: str = ""
    """What is special about this row; never a word of its text."""
    text: str = ""
    """The row's text, or the words found, for users who ask to see them."""
    unit: str = "line"
    """Line or row."""

    def to_json(self, *, show: bool) -> dict[str, Any]:
        """Return plain values; the text only with `show`."""
        values: dict[str, Any] = {"file": self.file, "line": self.line}
        if self.detail:
            values["detail"] = self.detail
        return values | ({"text": self.text} if show and self.text else {})


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found in a task's data."""

    check: str
    level: Level
    task: str
    split: str
    sentence: str
    advice: str = ""
    count: int = 0
    """Number of rows it is about."""
    places: tuple[Place, ...] = ()
    """Those rows, the most important first."""

    def to_json(self, *, show: bool = False) -> dict[str, Any]:
        """Return plain values; with `show`, texts as well."""
        return asdict(self) | {"places": [place.to_json(show=show) for place in self.places]}


@dataclass(frozen=True, eq=False)
class SplitRows:
    """The rows of one split that can be used."""

    reading: Split
    texts: list[tuple[str, ...]]
    labels: npt.NDArray[np.float64] | None
    """[rows], or [rows, labels] where a row has several; None if unlabelled."""
    prints: npt.NDArray[np.uint64]
    """Equal for rows that differ only in case, punctuation, spacing or the order of a pair."""
    groups: npt.NDArray[np.uint64]
    """Equal for rows that belong together: of one group where they name one, else as `prints`."""
    ids: npt.NDArray[np.int64]
    """Hash of each row's id; 0 without one."""
    files: npt.NDArray[np.int64]
    """Number of the row's file among the sources."""
    numbers: npt.NDArray[np.int64]
    """The row's number in its file, from 0."""
    sources: tuple[Source, ...]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def task(self) -> str:
        """The task's name."""
        return self.reading.task_name

    @property
    def split(self) -> SplitName:
        """The split's name."""
        return self.reading.split

    @property
    def config(self) -> TaskConfig:
        """The task's settings."""
        return self.reading.task

    @property
    def reports(self) -> Sequence[FileReport]:
        """What became of each file's rows."""
        return self.reading.reports

    def places(self, rows: Numbers, details: Sequence[str] = ()) -> tuple[Place, ...]:
        """Return where rows are, in the order given, each with its detail."""
        lines: dict[int, int] = {}
        chosen = [int(row) for row in rows]
        for index, source in enumerate(self.sources):
            here = [row for row in chosen if self.files[row] == index]
            own = source.lines([int(self.numbers[row]) for row in here]) if here else []
            lines |= dict(zip(here, own, strict=True))
        found = []
        for row, detail in zip(chosen, details or [""] * len(chosen), strict=True):
            source = self.sources[self.files[row]]
            text = " | ".join(self.texts[row])
            found.append(Place(str(source.path), lines[row], detail, text, source.unit))
        return tuple(found)

    def finding(
        self,
        check: str,
        level: Level,
        sentence: str,
        advice: str = "",
        rows: Numbers = (),
        details: Sequence[str] = (),
    ) -> Finding:
        """Return a finding about rows of this split."""
        places = self.places(rows, details) if len(rows) else ()
        return Finding(check, level, self.task, self.split, sentence, advice, len(rows), places)

    def name_label(self, row: int) -> str:
        """Return a row's label in words."""
        assert self.labels is not None
        return self.config.kind.write(self.labels[row : row + 1])[0]


def read_splits(
    config: RunConfig, data: str | None, progress: Progress | None = None, *, grouped: bool = False
) -> Iterator[SplitRows | Finding]:
    """Yield every split of every task; what cannot be read becomes a finding.

    With `grouped`, training rows come with their groups; training without folds ignores them.
    """
    root = find_root(config.data, data)
    held_out = find_held_out(config, root)
    for name, task in config.tasks.items():
        # Only rows of the files are checked, and bad ones are counted, whatever training does.
        bare = task.model_copy(update={"augment": (), "bad_rows": "skip"})
        for split in SPLITS:
            fold = config.data.deal(split)
            if not has_rows(task, split, fold):
                yield from _missing_files(name, split)
                continue
            try:
                labelled = split != "unlabelled" and (
                    split != "test" or _has_labels(task, root, config.data.hint)
                )
                reading = Split(
                    name,
                    bare,
                    split,
                    root,
                    "skip",
                    config.seed,
                    labelled,
                    config.data.hint,
                    fold,
                    config.data.drop_overlap,
                    held_out,
                    grouped and split == "train",
                    most_places=sys.maxsize,
                )
                yield from _read(reading, task.bad_rows or config.data.bad_rows, progress)
            except UsageError as error:
                if split == "test":
                    advice = "training does not need it"
                    yield Finding("files", "warning", name, split, str(error), advice)
                else:
                    yield Finding("files", "stop", name, split, str(error))


def _missing_files(task: str, split: SplitName) -> Iterator[Finding]:
    if split == "train":
        problem = "there are no training files"
        yield Finding("files", "stop", task, split, problem, "name some under train")
    if split == "dev":
        problem = "there are no dev files, so no score tells which checkpoint is best"
        yield Finding("files", "warning", task, split, problem, "set dev_fraction or data.folds")


def _has_labels(task: TaskConfig, root: Path | None, hint: str) -> bool:
    """Return whether every test file has its label columns."""
    for file in task.test:
        if file.constant is not None:
            continue
        label = file.label or task.label
        wanted = {label} if isinstance(label, str) else {*(label or ())}
        for path in find_files(file.path, root, hint).values():
            source = open_source(path, separator=file.separator, quoting=file.quoting)
            if not wanted or not wanted <= {*source.names()}:
                return False
    return True


def _read(reading: Split, policy: str, progress: Progress | None) -> Iterator[SplitRows | Finding]:
    """Yield the rows of a split, and findings about those that cannot be used."""
    try:
        rows = _take(reading, progress)
    except DataError as error:
        if not reading.grouped:
            raise
        reading = replace(reading, grouped=False)
        rows = _take(reading, progress)  # raises if the groups are not the reason
        advice = "training with folds would stop; rows are checked without groups"
        yield Finding("files", "warning", rows.task, rows.split, str(error), advice)
    yield rows
    for report, source in zip(rows.reports, rows.sources, strict=True):
        if report.held_out:
            yield rows.finding(
                "overlap",
                "note",
                f"{counted(report.held_out, 'row')} of {report.name} left out, because dev or test "
                "has them",
                "drop_overlap says so" if rows.split == "train" else "unlabelled rows always are",
            )
        if report.skipped:
            total = sum(report.skipped.values())
            reasons = ", ".join(f"{n:,} {reason}" for reason, n in report.skipped.items())
            stops = policy == "error" and rows.split != "test"
            sentence = f"{counted(total, 'row')} cannot be used ({reasons}); the first: "
            lines = (int(place.split()[-1]) for place in report.places)
            yield Finding(
                "bad rows",
                "stop" if stops else "note",
                rows.task,
                rows.split,
                sentence + report.first,
                'fix them, or set bad_rows = "skip"' if stops else "they are skipped",
                total,
                tuple(Place(str(source.path), line, unit=source.unit) for line in lines),
            )


def _take(reading: Split, progress: Progress | None) -> SplitRows:
    texts: list[tuple[str, ...]] = []
    labels, prints, groups, ids, files, numbers = [], [], [], [], [], []
    what = f"{reading.task_name} {reading.split}"
    tell = None if progress is None else lambda _, done, total: progress(what, done, total)
    for rows in reading.rows(tell):
        texts += zip(*(column.to_pylist() for column in rows.texts), strict=True)
        prints.append(fingerprint(rows.texts))
        groups.append(prints[-1] if rows.groups is None else name_groups(rows))
        named = reading.files[rows.file].columns.id is not None
        ids += [hash(key) if named and key else 0 for key in rows.ids.to_pylist()]
        files.append(np.full(len(rows), rows.file))
        numbers.append(rows.numbers)
        labels += [rows.labels] if rows.labels is not None else []
    sources = (
        open_source(file.path, separator=file.config.separator, quoting=file.config.quoting)
        for file in reading.files
    )
    return SplitRows(
        reading,
        texts,
        np.concatenate(labels) if labels else None,
        np.concatenate(prints),
        np.concatenate(groups),
        np.array(ids, np.int64),
        np.concatenate(files),
        np.concatenate(numbers),
        tuple(sources),
    )
