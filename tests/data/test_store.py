"""A split becomes a Dataset once; later starts map it, whatever happened to the cache."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plait.config import TaskConfig
from plait.data import Dataset, Tokenizer, cache_root, load_split
from plait.errors import DiskFullError, ResourceError

ROWS = [
    ("r1", " Good film ", "the bad film", "1"),
    ("rü", "bad, bad " * 20, "x", "0"),
    ("r3", "the film", "☃ good", "1"),
]
TASK = {"kind": "binary", "text": ("a", "b"), "label": "label", "id": "id", "train": "data.csv"}

Load = Callable[..., Dataset]


@pytest.fixture
def load(tmp_path: Path, tokenizer: Tokenizer) -> Load:
    """Load a split of the little task; keywords go to load_split, `task` over its settings."""
    lines = ["id,a,b,label", *(f'{i},"{a}","{b}",{y}' for i, a, b, y in ROWS)]
    (tmp_path / "data.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def run(task: dict[str, Any] | None = None, **given: Any) -> Dataset:
        settings = {"root": tmp_path, "tokenizer": tokenizer, "max_length": 16}
        settings |= {"bad_rows": "error", "seed": 1} | given
        config = TaskConfig.model_validate(TASK | (task or {}))
        return load_split("pairs", config, settings.pop("split", "train"), **settings)

    return run


def entries() -> list[Path]:
    return sorted((cache_root() / "tokens").iterdir())


def same(one: Dataset, other: Dataset) -> bool:
    return (
        all(
            torch.equal(getattr(a, part), getattr(b, part))
            for a, b in zip(one.tokens, other.tokens, strict=True)
            for part in ("ids", "offsets", "lengths")
        )
        and (one.labels is None) == (other.labels is None)
        and (one.labels is None or torch.equal(one.labels, other.labels))  # type: ignore[arg-type]
        and list(one.ids) == list(other.ids)
        and np.array_equal(one.fingerprints, other.fingerprints)
        and one.report == other.report
    )


def no_reading(*args: object, **settings: object) -> None:
    raise AssertionError("the file was parsed although its tokens are cached")


def test_contents(load: Load, tokenizer: Tokenizer) -> None:
    dataset = load()
    assert len(dataset) == 3
    assert dataset.name == "pairs"
    assert list(dataset.ids) == ["r1", "rü", "r3"]
    assert (dataset.ids[-1], dataset.ids[1:]) == ("r3", ["rü", "r3"])
    assert dataset.labels is not None
    assert dataset.labels.dtype == torch.float32
    assert dataset.labels.tolist() == [1, 0, 1]
    first, second = dataset.tokens
    assert (first.ids.dtype, first.offsets.dtype) == (torch.int32, torch.int64)
    assert first.lengths.tolist() == [2, 60, 2]  # before they were cut
    assert first.offsets.tolist() == [0, 2, 16, 18]  # 14 = 16 without two special tokens
    flat, lengths = tokenizer.encode([b for _, _, b, _ in ROWS])
    assert second.ids.tolist() == flat.tolist()
    assert second.lengths.tolist() == lengths.tolist()
    assert [str(r) for r in dataset.report] == ["data.csv: 3 rows"]


def test_second_start_does_not_parse(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load()
    monkeypatch.setattr("plait.data.split.open_source", no_reading)
    monkeypatch.setattr(Tokenizer, "encode", no_reading)
    assert same(load(), first)
    assert len(entries()) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"task": {"kind": "score"}},
        {"task": {"labels": ("unlike", "alike")}},
        {"task": {"text": ("b", "a")}},
        {"task": {"id": None}},
        {"task": {"label_map": {"1": 0, "0": 1}}},
        {"task": {"count": 2}},
        {"task": {"train": {"path": "data.csv", "count": 2}}},
        {"max_length": 15},
        {"bad_rows": "skip"},
        {"labelled": False},
    ],
)
def test_what_matters_is_in_the_key(load: Load, change: dict[str, Any]) -> None:
    load()
    load(**change)
    assert len(entries()) == 2


def change(path: Path, edit: Callable[[bytes], bytes]) -> None:
    path.write_bytes(edit(path.read_bytes()))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut": lambda entry: change(entry / "text0_ids.npy", lambda data: data[:-4]),
    "grown": lambda entry: change(entry / "labels.npy", lambda data: data + b"1234"),
    "gone": lambda entry: (entry / "text1_offsets.npy").unlink(),
    "flipped": lambda entry: change(entry / "text1_ids.npy", lambda d: d[:-4] + b"\1\0\0\0"),
    "header": lambda entry: change(entry / "labels.npy", lambda d: b"\0" * 60 + d[60:]),
    "no meta": lambda entry: (entry / "meta.json").unlink(),
    "half a meta": lambda entry: change(entry / "meta.json", lambda data: data[:20]),
    "other meta": lambda entry: change(entry / "meta.json", lambda _: b"[]"),
    "empty": lambda entry: [file.unlink() for file in entry.iterdir()],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_entries_are_made_anew(load: Load, damage: str) -> None:
    load()
    (entry,) = entries()
    contents = {file.name: file.read_bytes() for file in entry.iterdir()}
    DAMAGES[damage](entry)
    assert load().labels.tolist() == [1, 0, 1]  # type: ignore[union-attr]
    assert entries() == [entry]
    assert {file.name: file.read_bytes() for file in entry.iterdir()} == contents


@pytest.mark.parametrize(
    ("code", "error", "told"),
    [
        (errno.ENOSPC, DiskFullError, "no room left for the cache in .*PLAIT_CACHE"),
        (errno.EACCES, ResourceError, "cannot write the cache in .*PLAIT_CACHE"),
    ],
)
def test_disk_trouble(
    load: Load, monkeypatch: pytest.MonkeyPatch, code: int, error: type[Exception], told: str
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(error, match=told):
        load()
    assert entries() == []


def test_free_texts(load: Load, tokenizer: Tokenizer) -> None:
    loaded = load()
    dataset = Dataset.from_texts([(a, b) for _, a, b, _ in ROWS], tokenizer, 16)
    assert dataset.texts() == loaded.texts()
    assert np.array_equal(dataset.fingerprints, loaded.fingerprints)
    for one, other in zip(dataset.tokens, loaded.tokens, strict=True):
        assert torch.equal(one.ids, other.ids)
        assert torch.equal(one.offsets, other.offsets)
        assert torch.equal(one.lengths, other.lengths)
    assert len(Dataset.from_texts([], tokenizer, 16)) == 0
