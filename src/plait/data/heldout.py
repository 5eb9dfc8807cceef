"""The dev and test files of a recipe become what no training may see."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from plait.data.fingerprints import is_among, join_keys, read_keys, text_keys
from plait.data.folders import find_files
from plait.data.split import Split, SplitName
from plait.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy.typing as npt

    from plait.config import FileConfig, RunConfig, TaskConfig
    from plait.data.fingerprints import Hashes
    from plait.data.store import Dataset

HELD_OUT: tuple[SplitName, ...] = ("dev", "test")


@dataclass(eq=False)
class HeldOut:
    """Every text and every pair of the dev and test files of all tasks, by their keys.

    Texts are the same if they differ in case, punctuation and spacing alone, pairs in either
    order: as everywhere in plait.data.fingerprints. Files are read when first asked about.
    """

    splits: tuple[Split, ...]
    missing: tuple[str, ...] = ()
    """Files that are not there, which nothing can be kept out of training for."""
    _found: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def key(self) -> str:
        """Names the contents, for a cache entry or a run that depends on them."""
        described = json.dumps([split.describe() for split in self.splits], sort_keys=True)
        return hashlib.blake2b(described.encode(), digest_size=20).hexdigest()

    @cached_property
    def files(self) -> frozenset[Path]:
        """The dev and test files themselves, wherever links lead."""
        # A fold, and the rows of `dev_fraction`, are in training files.
        whole = (split for split in self.splits if split.source == split.split)
        return frozenset(file.path.resolve() for split in whole for file in split.files)

    @cached_property
    def texts(self) -> Hashes:
        """Keys of all texts, rising."""
        return self._keys[0]

    @cached_property
    def pairs(self) -> Hashes:
        """Fingerprints of all pairs, rising."""
        return self._keys[1]

    @cached_property
    def _keys(self) -> tuple[Hashes, Hashes]:
        none = np.empty(0, np.uint64)
        texts, pairs = [none], [none]
        for split in self.splits:
            for rows in split.rows():
                keys = [text_keys(column) for column in rows.texts]
                filled = [
                    np.asarray(column.to_numpy(zero_copy_only=False)) != "" for column in rows.texts
                ]
                texts += [some[there] for some, there in zip(keys, filled, strict=True)]
                if len(keys) == 2:
                    pairs.append(join_keys(*keys))
        return np.unique(np.concatenate(texts)), np.unique(np.concatenate(pairs))

    def has_rows(self, columns: Sequence[Any], *, by_text: bool = False) -> npt.NDArray[np.bool_]:
        """Say which rows dev or test has: its text among their texts, its pair among their pairs.

        `columns` are one or two pyarrow string arrays. With `by_text` one text of a pair is enough.
        """
        keys = [text_keys(column) for column in columns]
        if len(keys) == 1 or by_text:
            found = np.stack([is_among(some, self.texts) for some in keys])
            return np.asarray(found.any(axis=0))
        return is_among(join_keys(*keys), self.pairs)

    def has_texts(self, dataset: Dataset) -> npt.NDArray[np.bool_]:
        """Say which texts of a data set dev or test has: [rows, columns].

        Pairs are read out of their files again; of one text, its fingerprint tells.
        """
        if dataset.key and dataset.key in self._found:
            return self._found[dataset.key]
        if len(dataset.tokens) == 1:
            known = np.sort(join_keys(self.texts))
            found = is_among(dataset.fingerprints, known)[:, None]
        else:
            found = self._look_up(dataset)
        if dataset.key:
            self._found[dataset.key] = found
        return found

    def _look_up(self, dataset: Dataset) -> npt.NDArray[np.bool_]:
        found = np.zeros((len(dataset), len(dataset.tokens)), bool)
        begin = 0
        for columns in read_keys(dataset) if len(self.texts) else ():
            own = found[begin : begin + len(columns[0])]
            for i, keys in enumerate(columns):
                own[:, i] = is_among(keys, self.texts)
            begin += len(own)
        return found


def find_held_out(config: RunConfig, root: Path | None) -> HeldOut:
    """Gather what a recipe holds out: dev and test files, the fold, and rows of `dev_fraction`."""
    fold = config.data.deal()
    splits, missing = [], []
    for name, task in (*config.tasks.items(), *config.held_out.items()):
        # Read as training reads it, so that the same rows are drawn and dealt.
        policy = task.bad_rows or config.data.bad_rows
        hint, seed = config.data.hint, config.seed
        if fold and task.train:
            splits.append(Split(name, task, "dev", root, policy, seed, True, hint, fold))
        if task.held_out_fraction is not None:
            with suppress(DataError):  # reading the training rows says which file is missing
                splits.append(Split(name, task, "dev", root, policy, seed, True, hint))
        for split in HELD_OUT:
            for file in getattr(task, split):
                try:
                    find_files(file.path, root)
                except DataError:
                    missing.append(file.path)
                else:
                    splits.append(read_bare(name, task, split, file, root, config.seed))
    return HeldOut(tuple(splits), tuple(missing))


def read_bare(
    name: str, task: TaskConfig, split: SplitName, file: FileConfig, root: Path | None, seed: int
) -> Split:
    """Read the texts of a whole file, of which only some rows may be used."""
    every = {"count": None, "fraction": None}
    whole = file.model_copy(update={"id": "", **every})
    bare = task.model_copy(update={split: (whole,), **every})
    reading = Split(name, bare, split, root, "skip", seed, False)
    reading.bad_rows = "skip"  # a row that cannot be read holds nothing out
    return reading
