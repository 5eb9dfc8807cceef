"""Files of one task become a draft of it: columns, kind, labels, splits, each with its reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.analysis.draft.files import pick
from plait.analysis.draft.held_out import choose_fraction
from plait.analysis.draft.labels import LabelGuess, guess_kind
from plait.analysis.draft.names import read_split_word
from plait.analysis.draft.roles import Guess, Roles, Wanted, find_roles
from plait.config import TaskConfig
from plait.config.checking import validate
from plait.config.choose import IMBALANCED
from plait.data.rows import FileReport, RowReader
from plait.data.source import written_label
from plait.errors import DataError, UsageError
from plait.tasks.reading import LIST_MARK, LabelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from plait.analysis.draft.files import LookedAt
    from plait.data import SplitName
    from plait.tasks.reading import LabelReader

SPLITS: tuple[SplitName, ...] = ("train", "dev", "test")

FEW_ROWS = 50
"""Training rows below which a note says that figures will mean little."""


@dataclass(frozen=True)
class Wishes:
    """What the user said of a task; what is left out is guessed."""

    columns: Wanted = field(default_factory=Wanted)
    kind: str | None = None
    labels: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    dev_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row as its file has it, ready to be written again."""

    id: str | None
    texts: tuple[str, ...]
    label: tuple[str, ...]
    """What each label column says; empty where the file has none."""
    value: Any
    """The class or score that the label stands for; None where there is none."""
    split: SplitName


@dataclass
class TaskDraft:
    """A task, guessed."""

    name: str
    roles: Roles
    label: LabelGuess
    files: dict[SplitName, list[LookedAt]]
    config: TaskConfig
    num_rows: dict[SplitName, int] = field(default_factory=dict)
    """Rows that can be used."""
    classes: list[int] = field(default_factory=list)
    """Training rows of each class."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Rows of the user's files that cannot be used, by reason."""
    first_skipped: str = ""
    """Where the first of them is, if that can be told."""
    dev_fraction: float | None = None
    """Part of the training rows that becomes dev; None where there are dev files."""
    guesses: dict[str, Guess] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @cached_property
    def split_counts(self) -> Counter[str]:
        """How often the column of splits says what, as written; nothing where there is none."""
        counts: Counter[str] = Counter()
        for file in self.files["train"] if self.roles.split else ():
            counts.update(file.count_values(str(self.roles.split)))
        return counts

    @property
    def split_words(self) -> dict[SplitName, list[str]]:
        """What the column of splits says for each."""
        found: dict[SplitName, list[str]] = {}
        for word in self.split_counts:
            if split := read_split_word(word):
                found.setdefault(split, []).append(word)
        return found

    @property
    def is_chosen(self) -> bool:
        """Whether the splits' rows can be taken out of the user's files by what a column says."""
        return (
            {"train", "dev"} <= self.split_words.keys()
            and "" not in self.split_counts  # a row without a word
            and not any(file.is_mended for file in self.files["train"])
        )

    @property
    def written(self) -> list[SplitName]:
        """Splits whose rows are written into files of the draft's own."""
        if self.is_chosen:
            return []
        if self.roles.split:
            return [split for split in SPLITS if self.num_rows.get(split)]
        drawn = self.dev_fraction is not None
        mended = [s for s in SPLITS if any(f.is_mended for f in self.files.get(s, ()))]
        return [s for s in SPLITS if s in mended or (drawn and s in ("train", "dev"))]

    @property
    def largest(self) -> float:
        """Part of the training rows that the most frequent class has, where a row has one."""
        if self.config.kind.form != "distribution":
            return 0.0
        return max(self.classes, default=0) / max(sum(self.classes), 1)

    def read(self, split: SplitName) -> Iterator[Row]:
        """Read the rows of a split's files; those that cannot be used are left out."""
        for file in self.files.get(split, ()):
            yield from self._read_file(file, split)

    def values_of(self, written: Sequence[str]) -> list[float] | None:
        """Return the classes, or the score, that a label as written stands for; None if it is bad.

        One of them, but where a row has any number of labels. `written` is of every label column.
        """
        try:
            found = np.asarray([self._reader.read(self.spell(word)) for word in written])
        except LabelError:
            return None
        if self.config.kind.width is not None:  # 0 or 1 for each label
            found = np.flatnonzero(found).astype(float)
        values: list[float] = found.tolist()
        return values

    def values_in(self, place: int, written: str) -> list[float]:
        """Return what one of the label columns stands for where it says this; none if it is bad."""
        if len(self.roles.label) == 1:
            return self.values_of([written]) or []
        try:
            return [float(place)] if self._reader.read(written) else []
        except LabelError:
            return []

    def spell(self, written: str) -> str:
        """Write a list of labels as text has it."""
        return written.replace(LIST_MARK, self.config.label_separator)

    def make_reader(self) -> LabelReader:
        """Make what reads the labels, as training does."""
        return self.config.build_reader(self.roles.label, self.config.label_map)

    @cached_property
    def _reader(self) -> LabelReader:
        return self.make_reader()

    def _read_file(self, file: LookedAt, split: SplitName) -> Iterator[Row]:
        roles, width = self.roles, len(self.roles.text)
        label = roles.label if {*roles.label} <= file.columns.keys() else ()
        name = roles.id if roles.id in file.columns else None
        by = (roles.split,) if roles.split else ()
        for chunk in file.source().chunks(pick((*roles.text, *by), label, name)):
            for row in zip(*(column.to_pylist() for column in chunk.columns), strict=True):
                cells = [_as_text(cell) for cell in row]
                texts, rest = tuple(cells[:width]), cells[width:]
                own = (read_split_word(rest.pop(0)) or split) if by else split
                written, rest = rest[: len(label)], rest[len(label) :]
                values = self.values_of(written)
                value = values[0] if values and len(values) == 1 else tuple(values or ())
                # Every row of test wants an answer, whatever it lacks.
                if own == "test" or (values is not None and all(texts)):
                    spelled = tuple(map(self.spell, written))
                    yield Row(rest.pop(0) if name else None, texts, spelled, value, own)


def _as_text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace").strip()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return (written_label(value) or "").strip()


def draft_task(
    name: str, files: Mapping[SplitName, Sequence[LookedAt]], wishes: Wishes, why: Mapping[str, str]
) -> TaskDraft:
    """Guess what a task is from its files; `why` says of each split how its files were told."""
    kept: dict[SplitName, list[LookedAt]] = {s: list(files.get(s, ())) for s in SPLITS}
    if not kept["train"]:
        only = next(file for split in SPLITS for file in kept[split])
        raise UsageError(
            f"{only.given} is not for training by its name, and task {name!r} has no other file; "
            f"if it is, say so with --split train={only.given}"
        )
    first = kept["train"][0]
    may_be_several = wishes.kind in (None, "labels")
    roles = find_roles(first, wishes.columns, may_be_several=may_be_several)
    notes = [
        f"{file.given.name}: {note}" for s in SPLITS for file in kept[s] for note in file.notes
    ]
    for split in SPLITS:
        for file in list(kept[split]):
            if problem := _cannot_be(split, file, roles):
                if split == "train":
                    beside = f", which {first.given.name} of the same task has"
                    raise DataError(problem + beside * (file is not first), path=file.given)
                kept[split].remove(file)
                notes.append(f"{file.given.name} is left out of {split}: {problem}")
    labelled = [file for split in ("train", "dev") for file in kept[split]]
    label = _guess_label(roles, labelled, wishes.kind)
    label = _with_wishes(name, label, wishes)
    config = validate(TaskConfig, task_table(roles, label), f"task {name}")
    draft = TaskDraft(name, roles, label, kept, config, notes=notes)
    _count_rows(draft)
    _count_classes(draft, first)
    if not draft.num_rows.get("train"):
        raise DataError(f"no row can be trained on ({_reasons(draft)})", path=first.given)
    if not kept["dev"] and not draft.num_rows.get("dev"):
        _plan_dev(draft, wishes.dev_fraction)
    _tell(draft, wishes, why)
    return draft


def _guess_label(roles: Roles, files: Sequence[LookedAt], kind: str | None) -> LabelGuess:
    """Guess the kind of task by what the label columns of its files say."""
    if len(roles.label) > 1:
        return LabelGuess("labels", "each of its columns says whether one holds", roles.label)
    (column,) = roles.label
    counts: Counter[str] = Counter()
    for file in files:
        counts.update(file.count_values(column))
    if len(counts.keys() - {""}) == 1:
        raise _constant(column, files[0])
    return guess_kind(counts, column, kind=kind, where=str(files[0].given))


def task_table(roles: Roles, label: LabelGuess) -> dict[str, Any]:
    """Return a task's settings as a recipe has them, its files left out."""
    table: dict[str, Any] = {"kind": label.kind}
    if label.labels:
        table["labels"] = label.labels if isinstance(label.labels, int) else list(label.labels)
    if label.range:
        table["range"] = list(label.range)
    table["text"] = roles.text[0] if len(roles.text) == 1 else list(roles.text)
    table["label"] = roles.label[0] if len(roles.label) == 1 else list(roles.label)
    if label.separator:
        table["label_separator"] = label.separator
    if roles.id:
        table["id"] = roles.id
    if label.label_map:
        table["label_map"] = {key: float(value) for key, value in label.label_map.items()}
    return table


def _cannot_be(split: SplitName, file: LookedAt, roles: Roles) -> str:
    """Say why a file cannot be of a split; nothing where it can."""
    needed = [*roles.text, *(roles.label if split != "test" else ())]
    for name in needed:
        if name not in file.columns:
            return f"it has no column {name!r}"
    empty = (name for name in roles.label if split == "dev" and not file.columns[name].filled)
    return next((f"its column {name!r} is empty" for name in empty), "")


def _with_wishes(name: str, label: LabelGuess, wishes: Wishes) -> LabelGuess:
    if wishes.labels:
        label = replace(label, labels=wishes.labels)
    if wishes.range and label.kind != "score":
        raise UsageError(
            f"--range has the ends of a score, but the kind of {name} is {label.kind}; say --kind "
            f"{name}=score, or --range TASK=LOW,HIGH for the one that is meant"
        )
    return replace(label, range=wishes.range) if wishes.range else label


# --- counting ----------------------------------------------------------------------------


def _count_rows(draft: TaskDraft) -> None:
    """Count the rows that can be used, and those that cannot, in every file."""
    rows: Counter[SplitName] = Counter()
    if draft.is_chosen:
        _count_chosen(draft)
        return
    if draft.roles.split:
        for row in draft.read("train"):
            rows[row.split] += 1
        draft.num_rows = dict(rows)
        return
    roles = draft.roles
    for split in SPLITS:
        for file in draft.files[split]:
            if split == "test":
                chunks = file.source().chunks(pick(roles.text))
                rows[split] += sum(len(c.numbers) + len(c.bad) for c in chunks)
                continue
            labels = draft.make_reader()
            columns = pick(roles.text, roles.label)
            reader = RowReader(file.source(), columns, labels, "skip")
            rows[split] += sum(len(found) for found in reader)
            _note_skipped(draft, file, reader.report())
    draft.num_rows = dict(rows)


def _count_chosen(draft: TaskDraft) -> None:
    """Count the same where a column says of which split a row is."""
    column = draft.roles.split
    assert column is not None
    rows: Counter[SplitName] = Counter()
    columns = replace(pick(draft.roles.text, draft.roles.label), where=(column,))
    for split, words in draft.split_words.items():
        if split == "test":
            rows[split] = sum(draft.split_counts[word] for word in words)
            continue
        for file in draft.files["train"]:
            source, labels = file.source(), draft.make_reader()
            reader = RowReader(source, columns, labels, "skip", where={column: words})
            rows[split] += sum(len(found) for found in reader)
            _note_skipped(draft, file, reader.report())
    draft.num_rows = dict(rows)


def _note_skipped(draft: TaskDraft, file: LookedAt, report: FileReport) -> None:
    """Add up the rows of a file that cannot be used, and keep where the first of all is."""
    draft.skipped.update(report.skipped)
    if report.places and not draft.first_skipped and not file.is_mended:  # a copy has other lines
        draft.first_skipped = f"{file.given.name}, {report.places[0]}"


def _count_classes(draft: TaskDraft, first: LookedAt) -> None:
    """Count the training rows of each class; refuse labels with nothing to learn from."""
    seen: Counter[Any] = Counter()
    columns = draft.roles.label
    if draft.roles.split:
        for row in draft.read("train"):
            seen.update(draft.values_of(row.label) or () if row.split == "train" else ())
    else:
        for file in draft.files["train"]:
            for place, column in enumerate(columns):
                for written, count in file.count_values(column).items():
                    for value in draft.values_in(place, written):
                        seen[value] += count
    if not seen:
        known = draft.config.labels
        which = f"one of the labels {', '.join(known)}" if known else "a label"
        shown = ", ".join(map(repr, columns))
        raise DataError(f"no training row has {which} in column {shown}", path=first.given)
    if len(seen) == 1 and len(columns) == 1:
        known = draft.config.labels
        if draft.config.kind.name != "classes" or len(known) == 1:
            raise _constant(columns[0], first)
        only = known[int(min(seen))]
        raise DataError(
            f"of the labels {', '.join(known)}, training rows have {only} alone in "
            f"column {columns[0]!r}; mend the others (--labels), or add rows that have them",
            path=first.given,
        )
    if draft.config.labels:
        draft.classes = [seen[float(i)] for i in range(len(draft.config.labels))]


def _constant(column: str, file: LookedAt) -> DataError:
    return DataError(
        f"every training row has the same label in column {column!r}, so there is nothing to "
        "learn; add rows with another, or name another column with --label",
        path=file.given,
    )


def _plan_dev(draft: TaskDraft, wished: float | None) -> None:
    num_rows = draft.num_rows.get("train", 0)
    fraction = choose_fraction(num_rows) if wished is None else wished
    if fraction == 0 or num_rows < 4:
        why = "as given" if fraction == 0 else "too few rows to hold some out"
        draft.notes.append(f"there is no dev set ({why}), so no score while training")
        return
    draft.dev_fraction = fraction


# --- telling -----------------------------------------------------------------------------


def _tell(draft: TaskDraft, wishes: Wishes, why: Mapping[str, str]) -> None:
    """Write down every guess with its reason, and what a user should know."""
    roles, label = draft.roles, draft.label
    draft.guesses["text"] = Guess(" and ".join(roles.text), roles.why["text"])
    draft.guesses["label"] = Guess(", ".join(roles.label), roles.why["label"])
    draft.guesses["kind"] = Guess(_show_kind(label), "as given" if wishes.kind else label.why)
    if roles.id:
        draft.guesses["id"] = Guess(roles.id, roles.why["id"])
    for split in SPLITS:
        names = ", ".join(file.given.name for file in draft.files[split])
        if roles.split and draft.num_rows.get(split):
            source = ", ".join(file.given.name for file in draft.files["train"])
            rows = f"{draft.num_rows[split]:,} rows"
            draft.guesses[split] = Guess(source, f"column {roles.split!r} says so, {rows}")
        elif names:
            rows = f"{draft.num_rows.get(split, 0):,} rows"
            draft.guesses[split] = Guess(names, f"{why.get(split, '')}, {rows}")
        elif split == "dev" and draft.dev_fraction is not None:
            how = "fifth by fifth" if label.kind == "score" else "class by class"
            draft.guesses[split] = Guess(
                f"{draft.dev_fraction:.0%} of train", f"there is no dev file; drawn {how}"
            )
    _warn(draft)


def _show_kind(label: LabelGuess) -> str:
    if label.kind == "score":
        low, high = label.range or (0.0, 1.0)
        return f"score, {low:g} to {high:g}"
    num = label.labels if isinstance(label.labels, int) else len(label.labels)
    return f"{label.kind}, {num}" if num > 2 else label.kind


def _reasons(draft: TaskDraft) -> str:
    told = ", ".join(f"{count:,} {reason}" for reason, count in draft.skipped.items())
    return told or "0 rows"


def _warn(draft: TaskDraft) -> None:
    notes, num_rows = draft.notes, draft.num_rows.get("train", 0)
    if draft.roles.others:
        others = ", ".join(repr(name) for name in draft.roles.others)
        notes.append(f"{others} could be a label as well; --label chooses, --task adds a task")
    if draft.roles.doubt:
        notes.append(draft.roles.doubt)
    if len(draft.roles.label) > 1 and draft.roles.why["label"] != "as given":
        notes.append(
            "it is guessed that these columns of 0 and 1 are labels of one task, of which a row "
            "may have any number; --label names those that are, or the only one"
        )
    if draft.skipped:
        place = f"; the first is in {draft.first_skipped}" if draft.first_skipped else ""
        notes.append(f"rows that cannot be used are skipped: {_reasons(draft)}{place}")
    if draft.label.strays:
        shown = ", ".join(repr(value[:20]) for value in draft.label.strays[:5])
        notes.append(f"among the labels, which are numbers, are others: {shown}")
    if num_rows < FEW_ROWS:
        notes.append(f"{num_rows} training rows are few: scores will vary much from run to run")
    empty = [draft.config.labels[i] for i, count in enumerate(draft.classes) if count == 0]
    if empty:
        notes.append(f"no training row is labelled {', '.join(empty[:5])}")
    rare = [i for i, count in enumerate(draft.classes) if 0 < count < 5]
    if rare:
        shown = ", ".join(f"{draft.config.labels[i]} ({draft.classes[i]})" for i in rare[:5])
        more = f" and {len(rare) - 5} more" if len(rare) > 5 else ""
        notes.append(f"classes with hardly a training row: {shown}{more}")
    if draft.largest >= IMBALANCED:
        notes.append(
            f"{draft.largest:.0%} of the training rows are of one class, so macro_f1 stands for "
            "the task, not accuracy"
        )
