"""A split of a task becomes rows with their places in files, read as training reads them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.analysis.check.findings import Finding, Place, num_rows
from plait.data import Columns, find_files, find_held_out, find_root, open_source
from plait.data.fingerprints import fingerprint
from plait.data.split import Split, name_groups
from plait.errors import DataError, UsageError
from plait.tasks.reading import plain_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from plait.analysis.check.findings import Level
    from plait.config import RunConfig, TaskConfig
    from plait.data import FileReport, SplitName
    from plait.data.source import Source

    Progress = Callable[[str, int, int], None]
    """Called with what is under way, how much of it is done and how much there is."""

SPLITS: tuple[SplitName, ...] = ("train", "unlabelled", "dev", "test")


@dataclass(frozen=True, eq=False)
class SplitRows:
    """The rows of one split that can be used."""

    task: str
    split: SplitName
    config: TaskConfig
    texts: list[tuple[str, ...]]
    labels: npt.NDArray[np.float64] | None
    """[rows], or [rows, labels] where a row has several; None if unlabelled."""
    prints: npt.NDArray[np.uint64]
    """Equal for rows that differ in case, punctuation, spacing or the order of a pair alone."""
    groups: npt.NDArray[np.uint64]
    """Equal for rows that belong together: of one group where they name one, else as `prints`."""
    files: npt.NDArray[np.int64]
    """[rows]: which of the sources a row is from."""
    numbers: npt.NDArray[np.int64]
    """[rows]: the row's number there, from 0."""
    sources: tuple[Source, ...]
    reports: tuple[FileReport, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def places(
        self, rows: Sequence[int] | npt.NDArray[np.int64], details: Sequence[str] = ()
    ) -> tuple[Place, ...]:
        """Return where rows are, in the order given, each with its detail."""
        found: dict[int, int] = {}
        chosen = [int(row) for row in rows]
        for index, source in enumerate(self.sources):
            here = [row for row in chosen if self.files[row] == index]
            lines = source.lines([int(self.numbers[row]) for row in here]) if here else []
            found |= dict(zip(here, lines, strict=True))
        return tuple(
            Place(
                str(self.sources[self.files[row]].path),
                found[row],
                details[i] if details else "",
                " | ".join(self.texts[row]),
                self.sources[self.files[row]].unit,
            )
            for i, row in enumerate(chosen)
        )

    def finding(
        self,
        check: str,
        level: Level,
        sentence: str,
        advice: str = "",
        rows: Sequence[int] | npt.NDArray[np.int64] = (),
        details: Sequence[str] = (),
    ) -> Finding:
        """Make a finding about rows of this split."""
        places = self.places(rows, details) if len(rows) else ()
        return Finding(check, level, self.task, self.split, sentence, advice, len(rows), places)

    def name_label(self, row: int) -> str:
        """Write a row's label as a reader would."""
        assert self.labels is not None
        return self.config.kind.write(self.labels[row : row + 1])[0]


def read_splits(
    config: RunConfig,
    data: str | None,
    progress: Progress | None = None,
    *,
    grouped: bool = False,
) -> Iterator[SplitRows | Finding]:
    """Read every split of every task; what cannot be read becomes a finding.

    Training rows come with their groups if `grouped`; else they are not looked at, as in training.
    """
    root = find_root(config.data, data)
    held_out = find_held_out(config, root)
    for name, task in config.tasks.items():
        for split in SPLITS:
            fold = config.data.deal(split)
            source: SplitName = "train" if fold and split == "dev" else split
            if not getattr(task, source):
                if split in ("train", "dev"):
                    yield _no_files(name, split)
                continue
            try:
                # Ids give way to row numbers, and nothing is added to the rows of the files.
                bare = task.model_copy(
                    update={"id": None, "augment": ()}
                    | {s: _without_ids(getattr(task, s)) for s in SPLITS}
                )
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
                )
                reading.bad_rows = "error" if split == "test" and not labelled else "skip"
                yield from _read(reading, config, progress)
                if split == source and split != "unlabelled":  # nobody asks for the ids of those
                    yield from _repeated_ids(name, task, split, root, config.data.hint)
            except UsageError as error:
                if split == "test":
                    told = "training goes on without it"
                    yield Finding("files", "warning", name, split, str(error), told)
                else:
                    yield Finding("files", "stop", name, split, str(error))


def _no_files(task: str, split: SplitName) -> Finding:
    if split == "train":
        return Finding(
            "files", "stop", task, split, "there are no training files", "name some under train"
        )
    return Finding(
        "files",
        "warning",
        task,
        split,
        "there are no dev files, so no score tells which checkpoint is best",
        "hold some rows out, or set data.folds",
    )


def _without_ids(files: Any) -> Any:
    return tuple(file.model_copy(update={"id": ""}) for file in files)


def _has_labels(task: TaskConfig, root: Any, hint: str) -> bool:
    """Say whether every test file has the column of the label, or of every label."""
    for file in task.test:
        paths = find_files(file.path, root, hint).values()
        if file.constant is not None:
            continue
        label = file.label or task.label
        wanted = (label,) if isinstance(label, str) else label or ()
        sources = (open_source(p, separator=file.separator, quoting=file.quoting) for p in paths)
        if not wanted or not all(set(wanted) <= set(source.names()) for source in sources):
            return False
    return True


def _read(
    reading: Split, config: RunConfig, progress: Progress | None
) -> Iterator[SplitRows | Finding]:
    try:
        found = _take(reading, progress)
    except DataError as error:
        if not reading.grouped:
            raise
        again = replace(reading, grouped=False)
        again.bad_rows, reading = reading.bad_rows, again
        found = _take(reading, progress)  # else it was not for the groups
        advice = "training goes on, folds would not; here rows are dealt without groups"
        yield Finding("files", "warning", found.task, found.split, str(error), advice)
    yield found
    yield from _bad_rows(reading, found, reading.task.bad_rows or config.data.bad_rows)


def _take(reading: Split, progress: Progress | None) -> SplitRows:
    texts: list[tuple[str, ...]] = []
    labels, prints, groups, files, numbers = [], [], [], [], []
    what = f"{reading.task_name} {reading.split}"
    told = None if progress is None else lambda _, done, total: progress(what, done, total)
    for rows in reading.rows(told):
        files.append(np.full(len(rows), rows.file))
        numbers.append(np.array(rows.ids.to_pylist(), np.int64))
        texts += zip(*(column.to_pylist() for column in rows.texts), strict=True)
        prints.append(fingerprint(rows.texts))
        groups.append(prints[-1] if rows.groups is None else name_groups(rows))
        labels.append(rows.labels)
    sources = tuple(
        open_source(file.path, separator=file.config.separator, quoting=file.config.quoting)
        for file in reading.files
    )
    given = [some for some in labels if some is not None]
    return SplitRows(
        reading.task_name,
        reading.split,
        reading.task,
        texts,
        np.concatenate(given) if given else None,
        np.concatenate(prints),
        np.concatenate(groups),
        np.concatenate(files),
        np.concatenate(numbers),
        sources,
        tuple(reading.reports),
    )


def _repeated_ids(
    name: str, task: TaskConfig, split: SplitName, root: Any, hint: str
) -> Iterator[Finding]:
    """Tell of rows whose id another row of the split has: nobody can tell their answers apart."""
    # A hash a row, not the ids themselves: there may be millions.
    hashes: list[npt.NDArray[np.int64]] = []
    files: list[tuple[Source, npt.NDArray[np.int64]]] = []
    for file in getattr(task, split):
        column = task.id if file.id is None else file.id
        if not column or file.where:  # of the rows of other splits, nobody asks
            continue
        for path in find_files(file.path, root, hint).values():
            source = open_source(path, separator=file.separator, quoting=file.quoting)
            for chunk in source.chunks(Columns((), (column,), None)):
                keys = [plain_text(value) for value in chunk.columns[0].to_pylist()]
                filled = np.array([bool(key) for key in keys], bool)
                files.append((source, np.asarray(chunk.numbers)[filled]))
                hashes.append(np.array([hash(key) for key in keys if key], np.int64))
    places = list(_find_repeated(hashes, files))
    if places:
        have = "has an id that a row before it" if len(places) == 1 else "have ids that rows before"
        sentence = f"{num_rows(len(places))} {have} {'has' if len(places) == 1 else 'them have'}"
        advice = "give each row its own: submissions and lists of mistakes name rows by it"
        found = tuple(places)
        yield Finding("ids", "note", name, split, sentence, advice, len(found), found)


def _find_repeated(
    hashes: Sequence[npt.NDArray[np.int64]],
    files: Sequence[tuple[Source, npt.NDArray[np.int64]]],
) -> Iterator[Place]:
    """Yield where rows stand whose hash came before."""
    every = np.concatenate([np.empty(0, np.int64), *hashes])
    first = np.zeros(len(every), bool)
    first[np.unique(every, return_index=True)[1]] = True
    start = 0
    for own, (source, numbers) in zip(hashes, files, strict=True):
        again = numbers[~first[start : start + len(own)]].tolist()
        start += len(own)
        yield from (Place(str(source.path), line, unit=source.unit) for line in source.lines(again))


def _bad_rows(reading: Split, found: SplitRows, policy: str) -> Iterator[Finding]:
    """Tell of rows that fail a check of plait.data's: they stop training, or are skipped."""
    for report in found.reports:
        if report.held_out:
            yield Finding(
                "overlap",
                "note",
                found.task,
                found.split,
                f"{num_rows(report.held_out)} of {report.name}, which dev or test has, left out",
                "drop_overlap says so" if found.split == "train" else "so are all without labels",
            )
    for index, report in enumerate(found.reports):
        if not report.skipped:
            continue
        total = sum(report.skipped.values())
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in report.skipped.items())
        stops = policy == "error" and reading.split != "test"
        yield Finding(
            "bad rows",
            "stop" if stops else "note",
            found.task,
            found.split,
            f"{num_rows(total)} cannot be used ({reasons}); the first: {report.first}",
            'mend them, or set bad_rows = "skip"' if stops else "they are skipped",
            total,
            _bad_places(reading, found, index, report),
        )


def _bad_places(
    reading: Split, found: SplitRows, index: int, report: FileReport
) -> tuple[Place, ...]:
    source, path = found.sources[index], str(found.sources[index].path)
    file = reading.files[index]
    drawn = Counter(found.files.tolist())[index] != report.rows
    if drawn:  # rows that were not drawn are not bad: the report alone knows the bad ones
        return tuple(
            Place(path, int(place.split()[-1]), unit=source.unit) for place in report.places
        )
    good = set(found.numbers[found.files == index].tolist())
    numbers: list[int] = []
    for chunk in source.chunks(file.columns):
        numbers += [*chunk.numbers.tolist(), *(row.number for row in chunk.bad)]
    bad = sorted(number for number in numbers if number not in good)
    return tuple(Place(path, line, unit=source.unit) for line in source.lines(bad))
