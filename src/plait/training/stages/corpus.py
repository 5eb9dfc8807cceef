"""Tokenised datasets become one column of texts, without labels and without what is held out.

A text is known by its place in its data set, and its tokens are taken from there when a batch
needs them: so that what is mapped of a large file stays mapped, and is never copied as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from plait.data import ONE_TEXT, Collator, Dataset, Ragged
from plait.data.fingerprints import token_keys
from plait.training.stages.base import StageKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from torch import Tensor

    from plait.inference.scoring import Task
    from plait.training.stages.base import Material, Sources
    from plait.types import Tokens

    Places = npt.NDArray[np.int64]


class OnTexts(StageKind):
    """A kind that trains on bare texts: of the stage's tasks, and of the [texts.NAME] it names."""

    def __init__(self, max_length: int | None, texts: tuple[str, ...], from_tasks: bool):
        if max_length is not None and max_length < 8:
            raise ValueError(f"max_length must be 8 or more, not {max_length}")
        if not texts and not from_tasks:
            raise ValueError("from_tasks = false leaves no texts; name some in texts")
        self.texts, self.from_tasks = texts, from_tasks

    def count(self, sources: Sources) -> int:
        """Count the texts, each once."""
        return len(every_text(sources, self.from_tasks))

    def estimate(self, task: Task, rows: int) -> int:
        """Count every text, as if none stood there twice."""
        return rows * len(task.spec.text) if self.from_tasks else 0


class Texts:
    """Some texts of some columns, numbered from 0, column after column."""

    def __init__(self, columns: Sequence[tuple[Ragged, Places]]):
        self.columns = [(column, rows) for column, rows in columns if len(rows)]
        """Each with the rows of it that are meant, in order."""
        self.ends = np.cumsum([len(rows) for _, rows in self.columns], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def take(self, numbers: Places) -> Ragged:
        """Copy the tokens of some texts, in the order given."""
        columns = np.searchsorted(self.ends, numbers, side="right")
        starts, lengths = np.empty_like(numbers), np.empty_like(numbers)
        chosen = [(i, columns == i) for i in np.unique(columns).tolist()]
        for i, here in chosen:
            column, rows = self.columns[i]
            places = rows[numbers[here] - (self.ends[i] - len(rows))]
            starts[here], lengths[here] = _bounds(column, places)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        # Where each token stands in its column.
        tokens = np.arange(ends[-1]) + np.repeat(starts - ends[:-1], lengths)
        flat = np.empty(len(tokens), np.int32)
        for i, here in chosen:
            own = np.repeat(here, lengths)
            flat[own] = self.columns[i][0].ids.numpy()[tokens[own]]
        return Ragged(*map(torch.from_numpy, (flat, ends, lengths.astype(np.int32))))


def _bounds(column: Ragged, rows: Places) -> tuple[Places, Places]:
    """Return where the tokens of rows begin, and how many they are."""
    offsets = column.offsets.numpy()
    starts = offsets[rows]
    return starts, offsets[rows + 1] - starts


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts that become encoder input by their number."""

    texts: Texts
    collator: Collator
    limit: int
    """Tokens stored of a text at most."""

    def __len__(self) -> int:
        return len(self.texts)

    def tokens(self, rows: Tensor) -> Tokens:
        """Return some texts, padded, on the CPU."""
        taken, no_prints = self.texts.take(rows.numpy()), np.empty(0, np.uint64)
        dataset = Dataset("texts", (taken,), None, (), lambda: no_prints, self.limit, tuple)
        return self.collator(dataset, torch.arange(len(rows)), ONE_TEXT).tokens


def datasets(material: Material | Sources, from_tasks: bool) -> list[Dataset]:
    """Return what a kind takes its texts from: the tasks' training rows, then [texts.NAME]."""
    own = [material.train[name] for name in material.tasks] if from_tasks else []
    return [*own, *material.texts.values()]


def find_filled(column: Ragged) -> npt.NDArray[np.bool_]:
    """Say which rows have a token at least."""
    filled: npt.NDArray[np.bool_] = np.diff(column.offsets.numpy()) > 0
    return filled


def every_text(material: Material | Sources, from_tasks: bool) -> Texts:
    """Return every text of every column, each once, but for empty ones and those of dev and test.

    The same are texts of the same tokens; they are in the order they first appear.
    """
    columns = [
        (column, np.flatnonzero(find_filled(column) & ~held))
        for data in datasets(material, from_tasks)
        for column, held in zip(data.tokens, data.held_out().T, strict=True)
    ]
    keys = [np.empty(0, np.uint64), *(_keys(column, rows) for column, rows in columns)]
    _, first = np.unique(np.concatenate(keys), return_index=True)
    first.sort()
    ends = np.cumsum([len(rows) for _, rows in columns])
    kept = np.split(first, np.searchsorted(first, ends[:-1])) if columns else []
    return Texts(
        [
            (column, rows[own - (end - len(rows))])
            for (column, rows), own, end in zip(columns, kept, ends, strict=True)
        ]
    )


CHUNK = 1 << 16
"""Texts whose tokens are looked at together."""


def _keys(column: Ragged, rows: Places) -> npt.NDArray[np.uint64]:
    """Return a key per row, equal for the same tokens."""
    ids, keys = column.ids.numpy(), np.empty(len(rows), np.uint64)
    for begin in range(0, len(rows), CHUNK):
        some = slice(begin, begin + CHUNK)
        starts, lengths = _bounds(column, rows[some])
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1]) + np.repeat(starts - (ends - lengths), lengths)
        keys[some] = token_keys(ids[places], lengths)
    return keys


def make_corpus(texts: Texts, material: Material, max_length: int) -> Corpus:
    """Make texts ready to be batched; longer ones than `max_length` or the run's limit are cut."""
    collator = replace(material.collator, max_length=min(max_length, material.collator.max_length))
    # Stored texts are cut to the run's limit already, so that no more could be asked for.
    limit = material.collator.max_length - material.collator.layout.num_single
    return Corpus(texts, collator, limit)
