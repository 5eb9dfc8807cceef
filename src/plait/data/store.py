"""A split of a task becomes a Dataset: token ids, labels and row ids in mapped arrays.

Tokenising happens once. The arrays are kept in the cache under a name made of everything they
depend on (file contents, reading options, tokenizer), so a later start only maps them.
"""

from __future__ import annotations

import hashlib
import json
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
import tokenizers
import torch

from plait.config import TaskConfig
from plait.data.cache import FORMAT, Writer, load_or_build
from plait.data.digests import new_digest
from plait.data.fingerprints import fingerprint
from plait.data.folders import cache_root
from plait.data.rows import FileReport
from plait.data.split import Extension, Place, Progress, Split, SplitName, name_groups
from plait.errors import DataError
from plait.tasks import Score

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    import numpy.typing as npt
    from torch import Tensor

    from plait.config import BadRows, DropOverlap, TextsConfig
    from plait.data.heldout import HeldOut
    from plait.data.tokens import Tokenizer
    from plait.types import Truncate

    Encode = Callable[[Any], tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]]
    """An array of strings becomes their tokens end to end, and their uncut lengths."""


PARTS = ("ids", "offsets", "lengths")
"""Of a Ragged, as an entry of the cache names them."""


@dataclass(frozen=True, slots=True, eq=False)
class Ragged:
    """Rows of different lengths, end to end."""

    ids: Tensor
    """int32, all rows' tokens without special ones."""
    offsets: Tensor
    """int64 [rows + 1]: row i is ids[offsets[i]:offsets[i + 1]]."""
    lengths: Tensor
    """int32 [rows]: tokens before the row was cut to what is stored."""

    def select(self, rows: Sequence[int]) -> Ragged:
        """Return some of the rows, in the order given."""
        pieces = [self.ids[self.offsets[row] : self.offsets[row + 1]] for row in rows]
        ends = torch.tensor([0, *(len(piece) for piece in pieces)]).cumsum(0)
        return Ragged(torch.cat([self.ids[:0], *pieces]), ends, self.lengths[list(rows)])


def _find_none(rows: Sequence[int]) -> list[Place]:
    raise ValueError(f"texts by hand stand in no file, and the places of {len(rows)} are wanted")


@dataclass(frozen=True, eq=False)
class Dataset:
    """Examples of one task, tokenised."""

    name: str
    """The task's."""
    tokens: tuple[Ragged, ...]
    """One per text column."""
    labels: Tensor | None
    """[rows]: int64 class numbers, or float32 for binary and score; [rows, labels] float32 of 0
    and 1 for labels; None if unlabelled."""
    ids: Sequence[str]
    """The id column, or the row's number in its file, from 0."""
    find_fingerprints: Callable[[], npt.NDArray[np.uint64]]
    """Gives the fingerprints, made when first asked for: who only answers texts needs none."""
    limit: int
    """Tokens stored of a text at most."""
    read_texts: Callable[[], Iterable[tuple[str, ...]]]
    """Gives the texts again, in order."""
    report: tuple[FileReport, ...] = ()
    """What became of each file's rows."""
    key: str = ""
    """Names the contents: equal for equal files, options and tokenizer. Empty for texts by hand."""
    find_places: Callable[[Sequence[int]], list[Place]] = _find_none
    """Says where some rows stand in their files, by reading these again."""
    extensions: tuple[Extension, ...] = ()
    """What was added to the rows of all files together."""
    find_held_out: Callable[[], npt.NDArray[np.bool_]] | None = None
    """Says which texts a dev or test file of the recipe has, [rows, columns], by reading the files
    again; None where nothing is held out."""
    find_groups: Callable[[], npt.NDArray[np.uint64]] | None = None
    """Gives a key per row that those have in common which belong together, by reading the files
    again; None where they name no groups, or rows are not dealt into folds: then none are read."""

    def __len__(self) -> int:
        return len(self.tokens[0].lengths)

    @property
    def fingerprints(self) -> npt.NDArray[np.uint64]:
        """One per row, blind to case, punctuation, spacing and the order of a pair."""
        return self.find_fingerprints()

    def turned(self) -> Dataset:
        """Return the same rows as a model reads them with the second text of each pair first."""
        return replace(self, tokens=self.tokens[::-1])

    def digest_tokens(self) -> str:
        """Return a hash of the texts as they are tokenised, whatever they were read from."""
        digest = new_digest()
        for column in self.tokens:
            for part in PARTS:
                digest.update(getattr(column, part).numpy().data)
        return digest.hexdigest()

    def held_out(self) -> npt.NDArray[np.bool_]:
        """Say which texts no pre-training may see, since dev or test has them: [rows, columns]."""
        if self.find_held_out is None:
            return np.zeros((len(self), len(self.tokens)), bool)
        return self.find_held_out()

    def join(self, other: Dataset) -> Dataset:
        """Return these examples and then others of the same task.

        Labels are copied; tokens are put end to end in the cache, and mapped as those of each are.
        """
        assert self.labels is not None
        assert other.labels is not None

        def find_places(rows: Sequence[int]) -> list[Place]:
            ours = [i for i, row in enumerate(rows) if row < len(self)]
            theirs = [i for i, row in enumerate(rows) if row >= len(self)]
            places = self.find_places([rows[i] for i in ours])
            places += other.find_places([rows[i] - len(self) for i in theirs])
            order = dict(zip([*ours, *theirs], places, strict=True))
            return [order[i] for i in range(len(rows))]

        def find_groups() -> npt.NDArray[np.uint64]:
            parts = [d.find_groups or d.find_fingerprints for d in (self, other)]
            return np.concatenate([find() for find in parts])

        return replace(
            self,
            tokens=_join_tokens(self, other),
            labels=torch.cat([self.labels, other.labels]),
            ids=_Joined(self.ids, other.ids),
            find_fingerprints=lambda: np.concatenate([self.fingerprints, other.fingerprints]),
            read_texts=lambda: chain(self.read_texts(), other.read_texts()),
            report=(*self.report, *other.report),
            key=f"{self.key}+{other.key}",
            find_places=find_places,
            extensions=(*self.extensions, *other.extensions),
            find_held_out=lambda: np.concatenate([self.held_out(), other.held_out()]),
            find_groups=find_groups if self.find_groups or other.find_groups else None,
        )

    def select(self, rows: Sequence[int]) -> Dataset:
        """Return some of the examples, in the order given: a few, since their tokens are copied."""
        find_groups = self.find_groups or self.find_fingerprints
        return replace(
            self,
            tokens=tuple(column.select(rows) for column in self.tokens),
            labels=None if self.labels is None else self.labels[list(rows)],
            ids=[self.ids[row] for row in rows],
            find_fingerprints=lambda: self.fingerprints[list(rows)],
            read_texts=lambda: self.texts(rows),
            report=(),
            key="",
            find_places=lambda some: self.find_places([rows[row] for row in some]),
            extensions=(),
            find_held_out=None,
            find_groups=None if self.find_groups is None else lambda: find_groups()[list(rows)],
        )

    def texts(self, rows: Sequence[int] | None = None) -> list[tuple[str, ...]]:
        """Read the texts of some rows, or of all, out of their files again."""
        if rows is None:
            return list(self.read_texts())
        wanted = set(rows)
        found = {i: text for i, text in enumerate(self.read_texts()) if i in wanted}
        return [found[row] for row in rows]

    @classmethod
    def from_texts(
        cls,
        texts: Sequence[tuple[str, ...]],
        tokenizer: Tokenizer,
        max_length: int,
        truncate: Truncate = "head",
        *,
        blank: bool = False,
    ) -> Dataset:
        """Tokenise texts given by hand, in memory: tuples of one text each, or of two.

        Texts without a word are refused, unless they may be `blank`.
        """
        checked = [check_texts(i, row, blank=blank) for i, row in enumerate(texts)]
        if len(set(map(len, checked))) > 1:
            raise DataError("some examples have one text and some have two")
        limit = max_length - tokenizer.layout.num_single
        columns = [list(column) for column in zip(*checked, strict=True)] or [[]]
        tokens = []
        for column in columns:
            flat, lengths = tokenizer.encode(column, limit, truncate)
            offsets = np.concatenate([[0], np.cumsum(np.minimum(lengths, limit), dtype=np.int64)])
            tokens.append(Ragged(*map(torch.from_numpy, (flat, offsets, lengths))))

        @cache
        def find_fingerprints() -> npt.NDArray[np.uint64]:
            return fingerprint([pa.array(column, pa.string()) for column in columns])

        ids = [str(i) for i in range(len(checked))]
        return cls("texts", tuple(tokens), None, ids, find_fingerprints, limit, lambda: checked)


def load_split(
    task_name: str,
    task: TaskConfig,
    split: SplitName,
    *,
    root: Path | None,
    tokenizer: Tokenizer,
    max_length: int,
    truncate: Truncate = "head",
    bad_rows: BadRows,
    seed: int,
    labelled: bool = True,
    hint: str = "",
    fold: tuple[int, int] | None = None,
    drop_overlap: DropOverlap = False,
    held_out: HeldOut | None = None,
    progress: Progress | None = None,
) -> Dataset:
    """Read, check and tokenise a split of a task, or map it from the cache.

    `labelled=False` reads texts and ids alone, whatever the files say of labels, and leaves no
    row out. `hint` is what to tell a user whose files are not there. With a `fold`, (1, 5) say,
    dev is the first of the five parts of the training rows, and train the others. `drop_overlap`
    is for tasks that do not say which training rows are left out because they are `held_out`.
    """
    source = Split(
        task_name,
        task,
        split,
        root,
        bad_rows,
        seed,
        labelled,
        hint,
        fold,
        drop_overlap,
        held_out,
    )
    limit = max_length - tokenizer.layout.num_single
    described = source.describe() | {
        "format": FORMAT,
        "tokenizer": [tokenizer.fingerprint, tokenizers.__version__],
        "limit": limit,
    }
    if truncate != "head":  # entries made before there was a choice keep their names
        described["truncate"] = truncate
    text = json.dumps(described, sort_keys=True)
    encode = partial(tokenizer.encode, limit=limit, truncate=truncate)
    key = hashlib.blake2b(text.encode(), digest_size=20).hexdigest()
    arrays, meta = load_or_build(
        cache_root() / "tokens" / key,
        lambda writer, tell: _tokenise(source, encode, limit, writer, tell),
        progress,
    )
    found = {name: torch.from_numpy(a) for name, a in arrays.items() if a.dtype != np.uint64}
    labels = found.get("labels")
    if labels is not None and task.kind.width is not None:
        labels = labels.view(-1, task.kind.width)  # arrays are kept flat

    def check_unchanged() -> None:
        if source.describe()["files"] != described["files"]:
            raise DataError(f"the {split} files of task {task_name!r} changed while they were read")

    def find_places(rows: Sequence[int]) -> list[Place]:
        check_unchanged()
        return source.places(rows)

    def read_texts() -> Iterable[tuple[str, ...]]:
        check_unchanged()
        for rows in source.rows():
            yield from zip(*(t.to_pylist() for t in rows.texts), strict=True)

    def find_groups() -> npt.NDArray[np.uint64]:
        check_unchanged()
        return np.concatenate([name_groups(rows) for rows in source.rows()])

    return Dataset(
        task_name,
        _tokens(found, len(task.text)),
        labels,
        _Strings(arrays["row_ids"], arrays["row_id_offsets"]),
        lambda: arrays["fingerprints"],
        limit,
        read_texts,
        tuple(FileReport(**r | {"places": tuple(r["places"])}) for r in meta["report"]),
        key,
        find_places,
        tuple(Extension(**made) for made in meta.get("extensions", ())),
        find_groups=find_groups if any(file.columns.group for file in source.files) else None,
    )


def load_texts(
    name: str,
    texts: TextsConfig,
    *,
    root: Path | None,
    tokenizer: Tokenizer,
    max_length: int,
    truncate: Truncate = "head",
    seed: int,
    hint: str = "",
    progress: Progress | None = None,
) -> Dataset:
    """Read and tokenise texts that belong to no task, or map them from the cache."""
    # Rows are read as a task's without labels, but for the number of columns, which a task
    # has no three of: hence unchecked.
    task = TaskConfig.model_construct(kind=Score(), text=texts.text, train=texts.files)
    return load_split(
        name,
        task,
        "train",
        root=root,
        tokenizer=tokenizer,
        max_length=max_length,
        truncate=truncate,
        bad_rows="error",
        seed=seed,
        labelled=False,
        hint=hint,
        progress=progress,
    )


def _tokenise(
    source: Split, encode: Encode, limit: int, writer: Writer, progress: Progress
) -> dict[str, Any]:
    """Write a split's arrays, a chunk at a time; return what goes into its meta."""
    columns = [f"text{i}" for i in range(len(source.task.text))]
    ends = dict.fromkeys([*columns, "row_id"], 0)
    for name in ends:
        writer.append(f"{name}_offsets", np.zeros(1, np.int64))

    def append_offsets(name: str, lengths: npt.NDArray[Any]) -> None:
        offsets = ends[name] + np.cumsum(lengths, dtype=np.int64)
        writer.append(f"{name}_offsets", offsets)
        ends[name] = int(offsets[-1]) if len(offsets) else ends[name]

    for rows in source.rows(progress):
        for name, texts in zip(columns, rows.texts, strict=True):
            flat, lengths = encode(texts)
            writer.append(f"{name}_ids", flat)
            writer.append(f"{name}_lengths", lengths)
            append_offsets(name, np.minimum(lengths, limit))
        if rows.labels is not None:
            writer.append("labels", rows.labels.astype(source.task.kind.dtype).ravel())
        names = [name.encode() for name in rows.ids.to_pylist()]
        writer.append("row_ids", np.frombuffer(b"".join(names), np.uint8))
        append_offsets("row_id", np.array([len(name) for name in names], np.int64))
        writer.append("fingerprints", fingerprint(rows.texts))
    return {
        "report": [asdict(report) for report in source.reports],
        "extensions": [asdict(made) for made in source.extensions],
    }


def _join_tokens(one: Dataset, other: Dataset) -> tuple[Ragged, ...]:
    assert one.key
    assert other.key
    name = f"{one.key}+{other.key}"

    def write(writer: Writer, _: object) -> dict[str, Any]:
        for i, (a, b) in enumerate(zip(one.tokens, other.tokens, strict=True)):
            later = replace(b, offsets=b.offsets[1:] + a.offsets[-1])
            for part, some in ((part, some) for part in PARTS for some in (a, later)):
                writer.append(f"text{i}_{part}", getattr(some, part).numpy())
        return {}

    key = hashlib.blake2b(name.encode(), digest_size=20).hexdigest()
    arrays, _ = load_or_build(cache_root() / "tokens" / key, write)
    found = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return _tokens(found, len(one.tokens))


def _tokens(arrays: Mapping[str, Tensor], num_columns: int) -> tuple[Ragged, ...]:
    """Return what an entry holds of each text column."""
    return tuple(Ragged(*(arrays[f"text{i}_{part}"] for part in PARTS)) for i in range(num_columns))


class _Lazy(Sequence[str]):
    """Strings that are made when asked for."""

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        return self._at(i)

    @abstractmethod
    def _at(self, i: int) -> str:
        """Make number `i`, counted from the first."""


class _Joined(_Lazy):
    """Strings and then others, without a copy."""

    def __init__(self, one: Sequence[str], other: Sequence[str]):
        self._one, self._other = one, other

    def __len__(self) -> int:
        return len(self._one) + len(self._other)

    def _at(self, i: int) -> str:
        return self._one[i] if i < len(self._one) else self._other[i - len(self._one)]


class _Strings(_Lazy):
    """Strings kept as bytes end to end, decoded when asked for."""

    def __init__(self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]):
        self._data, self._offsets = data, offsets

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def _at(self, i: int) -> str:
        return self._data[self._offsets[i] : self._offsets[i + 1]].tobytes().decode("utf-8")


NO_TEXT = re.compile("[\0\ud800-\udfff]")
"""NUL, and halves of surrogate pairs."""


def check_texts(number: int, row: Any, *, blank: bool = False) -> tuple[str, ...]:
    """Return one example's texts stripped, after the checks that rows of files pass."""
    if isinstance(row, str) or not 1 <= len(row) <= 2:
        raise DataError(f"example {number} is not a tuple of one text or two")
    for text in row:
        if not isinstance(text, str):
            raise DataError(f"example {number}: {text!r:.40} is not a text")
        if not blank and not text.strip():
            raise DataError(f"example {number}: the text is empty")
        if NO_TEXT.search(text):
            raise DataError(f"example {number}: the text holds a NUL or half a surrogate pair")
    return tuple(text.strip() for text in row)
