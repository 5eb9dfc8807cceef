"""Tokenised datasets become one column of texts, without labels and without what is held out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from plait.data import Collator, Dataset, Ragged
from plait.types import TaskSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt
    from torch import Tensor

    from plait.pretrain.base import Material, Sources
    from plait.types import Tokens

ONE_TEXT = TaskSpec(kind="binary", text=("text",))
"""How the collator is told that a row is one text; its kind is not looked at."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts that become encoder input by their number."""

    dataset: Dataset
    collator: Collator

    def __len__(self) -> int:
        return len(self.dataset)

    def tokens(self, rows: Tensor) -> Tokens:
        """Return some texts, padded, on the CPU."""
        return self.collator(self.dataset, rows, ONE_TEXT).tokens


def datasets(material: Material | Sources, from_tasks: bool) -> list[Dataset]:
    """Return what a kind takes its texts from: the tasks' training rows, then [texts.NAME]."""
    own = [material.train[name] for name in material.tasks] if from_tasks else []
    return [*own, *material.texts.values()]


def text_tokens(texts: Ragged) -> list[npt.NDArray[np.int32]]:
    """Return every row's tokens."""
    ids = texts.ids.numpy()
    bounds = texts.offsets.tolist()
    return [ids[a:b] for a, b in pairwise(bounds)]


def without_doubles(
    columns: Iterable[Sequence[npt.NDArray[np.int32]]],
) -> list[npt.NDArray[np.int32]]:
    """Return every text once, by its tokens, in the order they first appear; no empty one."""
    kept = {tokens.tobytes(): tokens for column in columns for tokens in column if len(tokens)}
    return list(kept.values())


def every_text(material: Material | Sources, from_tasks: bool) -> list[npt.NDArray[np.int32]]:
    """Return the tokens of every text of every column, each once, but for those of dev and test."""
    columns = []
    for data in datasets(material, from_tasks):
        for column, held in zip(data.tokens, data.held_out().T, strict=True):
            every = zip(text_tokens(column), held.tolist(), strict=True)
            columns.append([tokens for tokens, is_held in every if not is_held])
    return without_doubles(columns)


def make_corpus(
    texts: Sequence[npt.NDArray[np.int32]], material: Material, max_length: int
) -> Corpus:
    """Put texts end to end; inputs longer than `max_length` or the run's limit lose their end."""
    collator = replace(material.collator, max_length=min(max_length, material.collator.max_length))
    lengths = np.array([len(tokens) for tokens in texts], np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    flat = np.concatenate(texts) if len(texts) else np.empty(0, np.int32)
    # Stored texts are cut to the run's limit already, so that no more could be asked for.
    limit = material.collator.max_length - material.collator.layout.num_single
    ragged = Ragged(*map(torch.from_numpy, (flat, offsets, lengths)))
    no_prints = np.empty(0, np.uint64)
    dataset = Dataset("texts", (ragged,), None, (), lambda: no_prints, limit, tuple)
    return Corpus(dataset, collator)
