"""Guess one task from its files: columns, kind, labels and splits, each with a reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.analysis.draft.columns import Choice, Roles, find_roles, read_split_word
from plait.analysis.draft.names import SPLITS
from plait.config import TaskConfig
from plait.config.checking import validate
from plait.config.choose import IMBALANCED
from plait.data.split import Split
from plait.errors import DataError, NoRowsError, UsageError
from plait.tasks import TASK_KINDS, Guess, LabelColumn, guess_kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from plait.analysis.draft.files import DataFile
    from plait.analysis.draft.names import Group
    from plait.data import SplitName

FEW_ROWS = 50
"""Training rows below which a note says that scores mean little."""
FEW_FOR_DEV = 4
"""Training rows below which none are held out for dev."""


@dataclass(frozen=True)
class Wishes:
    """The user's options for a task; everything else is guessed."""

    columns: Choice = field(default_factory=Choice)
    kind: str | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Guessed:
    """A guess, as it is shown, and its reason."""

    value: str
    why: str


@dataclass
class TaskDraft:
    """A task, guessed."""

    name: str
    roles: Roles
    files: dict[SplitName, list[DataFile]]
    table: dict[str, Any]
    """The task's settings as a recipe has them, without files."""
    config: TaskConfig
    """The same with its files."""
    guesses: dict[str, Guessed] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    num_rows: dict[SplitName, int] = field(default_factory=dict)
    """Rows that can be used; those of train include what is held out for dev."""
    classes: list[int] = field(default_factory=list)
    """Training rows of each class or label."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Rows that cannot be used, by reason."""
    dev_fraction: float | None = None
    """Share of the training rows that is held out for dev; None where there are dev files."""

    @property
    def largest(self) -> float:
        """Share of the training rows in the most frequent class, where a row has one class."""
        if self.config.kind.form != "distribution":
            return 0.0
        return max(self.classes, default=0) / max(sum(self.classes), 1)


def draft_task(group: Group, wishes: Wishes) -> TaskDraft:
    """Guess what a task is from its files."""
    files = {split: list(group.files.get(split, ())) for split in SPLITS}
    if not files["train"]:
        only = next(file for split in SPLITS for file in files[split]).path
        raise UsageError(
            f"task {group.name!r} has no training file, because the name of {only} says another "
            f"split; to train on it, use --split train={only}"
        )
    first = files["train"][0]
    may_be_several = wishes.kind is None or TASK_KINDS[wishes.kind].columns_name_labels
    roles = find_roles(first, wishes.columns, may_be_several=may_be_several)
    notes = [f"{f.path.name}: {note}" for split in SPLITS for f in files[split] for note in f.notes]
    notes += _drop_unfit(files, roles)
    labelled = [file for split in ("train", "dev") for file in files[split]]
    kind, guess = _guess_kind(roles, labelled, wishes.kind)
    table = _make_table(roles, kind, guess, wishes)
    own = [(split, _name_files(files, roles, split)) for split in SPLITS]
    tables = {split: found for split, found in own if found}
    config = validate(TaskConfig, table | tables, f"task {group.name}")
    draft = TaskDraft(group.name, roles, files, table, config, notes=[*notes, *roles.notes])
    place = _count_rows(draft, first)
    _explain(draft, kind, "as given" if wishes.kind else guess.why, group.why)
    _warn(draft, guess, place)
    return draft


def _drop_unfit(files: Mapping[SplitName, list[DataFile]], roles: Roles) -> list[str]:
    """Leave out dev and test files that lack a column; return a sentence for each.

    Raises DataError for a training file.
    """
    notes, first = [], files["train"][0]
    for split in SPLITS:
        for file in list(files[split]):
            needed = [*roles.text, *(roles.label if split != "test" else ())]
            missing = [name for name in needed if name not in file.columns]
            empty = [n for n in roles.label if n in file.columns and not file.columns[n].filled]
            if missing:
                problem = f"it has no column {missing[0]!r}"
            elif split == "dev" and empty:
                problem = f"its column {empty[0]!r} is empty"
            else:
                continue
            if split == "train":
                beside = f", which {first.path.name} of the same task has"
                raise DataError(problem + beside, path=file.path)
            files[split].remove(file)
            notes.append(f"{file.path.name} is left out of {split}: {problem}")
    return notes


def _guess_kind(roles: Roles, files: Sequence[DataFile], chosen: str | None) -> tuple[str, Guess]:
    """Guess the kind of task from the values of its label column."""
    if len(roles.label) > 1:
        kinds = (name for name in TASK_KINDS if TASK_KINDS[name].columns_name_labels)
        guess = Guess("each column says whether a label holds", {"labels": list(roles.label)})
        return chosen or next(kinds), guess
    (name,) = roles.label
    counts: Counter[str] = sum((file.count_values(name) for file in files), Counter())
    del counts[""]
    where = f"{files[0].path}: column {name!r}"
    if not counts:
        raise UsageError(f"{where} is empty; name another with --label")
    if len(counts) == 1:
        raise _constant(name, files[0])
    try:
        return guess_kind(LabelColumn(name, counts), chosen)
    except ValueError as error:
        raise UsageError(f"{where} {error}") from error


def _make_table(roles: Roles, kind: str, guess: Guess, wishes: Wishes) -> dict[str, Any]:
    """Return a task's settings as a recipe has them, without its files."""
    settings = dict(guess.settings)
    if wishes.labels:
        settings["labels"] = list(wishes.labels)
    table = {"kind": kind} | {k: settings[k] for k in ("labels", "range") if k in settings}
    for key, columns in (("text", roles.text), ("label", roles.label)):
        table[key] = columns[0] if len(columns) == 1 else list(columns)
    if "label_separator" in settings:
        table["label_separator"] = settings["label_separator"]
    if roles.id:
        table["id"] = roles.id
    if "label_map" in settings:
        table["label_map"] = settings["label_map"]
    return table


def _name_files(
    files: Mapping[SplitName, list[DataFile]], roles: Roles, split: SplitName
) -> list[dict[str, Any]]:
    """Return the files of a split as tables of a recipe."""
    where: dict[str, Any] = {}
    own = files[split]
    if roles.split:
        own = files["train"]
        counts: Counter[str] = sum((file.count_values(roles.split) for file in own), Counter())
        # A row that names no split is for training.
        words = [word for word in counts if (read_split_word(word) or "train") == split]
        if not words:
            return []
        where = {"where": {roles.split: words[0] if len(words) == 1 else words}}
    tables = []
    for file in own:
        table: dict[str, Any] = {"path": str(file.path.resolve())}
        if file.separator is not None:
            table["separator"] = file.separator
        if not file.quoting:
            table["quoting"] = False
        if roles.id and roles.id not in file.columns:
            table["id"] = ""
        tables.append(table | where)
    return tables


def _count_rows(draft: TaskDraft, first: DataFile) -> str:
    """Count rows and classes as training reads them; return where the first bad row is."""
    place, config = "", draft.config
    distinct: set[bytes] = set()
    counts: Any = None
    for split in SPLITS:
        if not getattr(config, split):
            continue
        reading = Split(draft.name, config, split, None, "skip", 0, labelled=split != "test")
        reading.bad_rows = "skip"
        try:
            for rows in reading.rows():
                draft.num_rows[split] = draft.num_rows.get(split, 0) + len(rows)
                if split == "train" and len(rows):
                    assert rows.labels is not None
                    if len(distinct) < 2:
                        distinct |= {row.tobytes() for row in np.unique(rows.labels, axis=0)[:2]}
                    own = config.kind.count(rows.labels)
                    counts = own if own is None or counts is None else counts + own
        except NoRowsError as error:
            if split == "train":
                raise DataError(f"no row can be trained on: {error}", path=first.path) from error
        if split == "test":
            continue
        for file, report in zip(reading.files, reading.reports, strict=True):
            draft.skipped.update(report.skipped)
            if report.places and not place:
                place = f"{file.path.name}, {report.places[0]}"
    if len(distinct) == 1 and len(draft.roles.label) == 1:
        raise _constant(draft.roles.label[0], first, _reasons(draft))
    draft.classes = [] if counts is None else counts.tolist()
    if not config.dev:
        _hold_out(draft)
    return place


def _hold_out(draft: TaskDraft) -> None:
    """Choose the share of the training rows that becomes dev."""
    num_rows = draft.num_rows["train"]
    fraction = 0.1 if num_rows >= 500 else 0.2  # more of few rows, so that dev has some
    config = draft.config.model_copy(update={"dev_fraction": fraction})
    try:
        if num_rows < FEW_FOR_DEV:
            raise NoRowsError("too few rows")
        held = sum(map(len, Split(draft.name, config, "dev", None, "skip", 0, True).rows()))
        if held == num_rows:
            raise NoRowsError("no row is left for training")
    except NoRowsError:
        draft.notes.append(
            "there is no dev set, because too few different texts could be held out: there are no "
            "scores while training"
        )
        return
    draft.config, draft.dev_fraction = config, fraction
    draft.num_rows["dev"] = held


def _constant(column: str, file: DataFile, reasons: str = "") -> DataError:
    skipped = f" that can be used ({reasons})" if reasons else ""
    return DataError(
        f"every training row{skipped} has the same label in column {column!r}, so there is "
        "nothing to learn; add rows with another, or name another column with --label",
        path=file.path,
    )


def _reasons(draft: TaskDraft) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in draft.skipped.items())


# --- what the user is shown --------------------------------------------------------------


def _explain(draft: TaskDraft, kind: str, why_kind: str, why: Mapping[SplitName, str]) -> None:
    """Record every guess with its reason."""
    roles, guesses = draft.roles, draft.guesses
    shown = kind
    if "range" in draft.table:
        shown += ", {:g} to {:g}".format(*draft.table["range"])
    elif len(draft.config.labels) > 2:
        shown += f", {len(draft.config.labels)}"
    guesses["text"] = Guessed(" and ".join(roles.text), roles.why["text"])
    guesses["label"] = Guessed(", ".join(roles.label), roles.why["label"])
    guesses["kind"] = Guessed(shown, why_kind)
    if roles.id:
        guesses["id"] = Guessed(roles.id, roles.why["id"])
    for split in SPLITS:
        rows = f"{draft.num_rows.get(split, 0):,} rows"
        if split == "dev" and draft.dev_fraction is not None:
            share = f"{draft.dev_fraction:.0%} of train"
            guesses[split] = Guessed(share, f"there is no dev file; {rows}, equal texts together")
        elif getattr(draft.config, split):
            files = draft.files["train" if roles.split else split]
            reason = f"column {roles.split!r} says so" if roles.split else why[split]
            guesses[split] = Guessed(", ".join(f.path.name for f in files), f"{reason}, {rows}")


def _warn(draft: TaskDraft, guess: Guess, place: str) -> None:
    """Add notes about what may spoil training."""
    notes, labels = draft.notes, draft.config.labels
    if draft.skipped:
        first = f"; the first is in {place}" if place else ""
        notes.append(f"rows that cannot be used are skipped: {_reasons(draft)}{first}")
    if guess.strays:
        shown = ", ".join(repr(value[:20]) for value in guess.strays[:5])
        notes.append(f"the labels are numbers, except {shown}")
    if (num_rows := draft.num_rows["train"]) < FEW_ROWS:
        notes.append(f"{num_rows} training rows are few: scores will vary much from run to run")
    empty = [labels[i] for i, count in enumerate(draft.classes) if count == 0]
    if empty:
        notes.append(f"no training row is labelled {', '.join(empty[:5])}")
    rare = [f"{labels[i]} ({n})" for i, n in enumerate(draft.classes) if 0 < n < 5]
    if rare:
        more = f" and {len(rare) - 5} more" if len(rare) > 5 else ""
        notes.append(f"classes with hardly a training row: {', '.join(rare[:5])}{more}")
    if draft.largest >= IMBALANCED:
        notes.append(
            f"{draft.largest:.0%} of the training rows have one class, so the task is scored by "
            "macro F1, not accuracy"
        )
