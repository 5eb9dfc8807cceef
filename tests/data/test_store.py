"""A split becomes a Dataset once; later starts map it, whatever happened to the cache."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from plait.config import TaskConfig
from plait.data import Dataset, Tokenizer, cache_root, load_split
from plait.errors import DataError, DiskFullError, ResourceError

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


def test_texts(load: Load) -> None:
    dataset = load()
    assert dataset.texts() == [(a.strip(), b.strip()) for _, a, b, _ in ROWS]
    assert dataset.texts([2, 0]) == [("the film", "☃ good"), ("Good film", "the bad film")]


def test_texts_of_a_changed_file(load: Load, tmp_path: Path) -> None:
    dataset = load()
    (tmp_path / "data.csv").write_text("id,a,b,label\n1,x,y,1\n", encoding="utf-8")
    with pytest.raises(DataError, match="the train files of task 'pairs' have changed"):
        dataset.texts()


@pytest.mark.parametrize(
    ("task", "dtype"),
    [
        ({"kind": "classes", "labels": 2}, torch.int64),
        ({"kind": "score", "range": (0, 5)}, torch.float32),
    ],
)
def test_label_types(load: Load, task: dict[str, Any], dtype: torch.dtype) -> None:
    labels = load(task).labels
    assert labels is not None
    assert labels.dtype == dtype


def test_unlabelled(load: Load) -> None:
    assert load(task={"label": None}, labelled=False).labels is None


def test_joined_is_as_read_from_one_file_after_the_other(load: Load) -> None:
    one = load()
    joined = one.join(one)
    assert joined.ids[2:4] == ["r3", "r1"]
    assert same(joined, load({"train": ({"path": "data.csv"}, {"path": "data.csv"})}))
    assert [place.number for place in joined.find_places([4, 0])] == [3, 2]


def test_joined_tokens_are_kept_in_the_cache(load: Load) -> None:
    """They might not fit into memory."""
    one = load()
    joined = one.join(one)
    (entry,) = set(entries()) - {cache_root() / "tokens" / one.key}
    kept = np.load(entry / "text1_ids.npy")
    assert np.array_equal(kept, joined.tokens[1].ids.numpy())
    assert same(one.join(one), joined)
    assert len(entries()) == 2


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


@pytest.mark.parametrize(
    "change", [{"seed": 2}, {"task": {"inputs": "apart"}}, {"task": {"weight": 3.0}}]
)
def test_what_does_not_matter_is_not(load: Load, change: dict[str, Any]) -> None:
    load()
    load(**change)
    assert len(entries()) == 1


def test_content_and_tokenizer_are_in_the_key(load: Load, tmp_path: Path, vocabulary: Path) -> None:
    load()
    (tmp_path / "vocab.txt").write_bytes(vocabulary.read_bytes() + b"zzz\n")
    load(tokenizer=Tokenizer.from_file(tmp_path / "vocab.txt"))
    assert len(entries()) == 2
    path = tmp_path / "data.csv"
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b"Good", b"Food"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # same size, same age
    assert load().texts([0])[0][0] == "Food film"
    assert len(entries()) == 3


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


@pytest.mark.skipif(os.name != "posix", reason="modes of files are POSIX")
@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_who_may_read_files_may_read_entries(load: Load, mask: int) -> None:
    before = os.umask(mask)
    try:
        load()
    finally:
        os.umask(before)
    (entry,) = (cache_root() / "tokens").iterdir()
    assert entry.stat().st_mode & 0o777 == 0o777 & ~mask


def test_writing_to_a_dataset_leaves_the_cache_alone(load: Load) -> None:
    dataset = load()
    assert dataset.labels is not None
    dataset.labels.add_(7)
    again = load()
    assert again.labels is not None
    assert again.labels.tolist() == [1, 0, 1]


def test_failures_leave_nothing_behind(load: Load, tmp_path: Path) -> None:
    with (tmp_path / "data.csv").open("a", encoding="utf-8") as file:
        file.write("x,y,z,7\n")
    with pytest.raises(DataError, match=r"data.csv, line 5: label '7' is not 0 or 1"):
        load()
    assert entries() == []


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


def test_cache_folder_that_is_a_file(
    load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PLAIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(ResourceError, match="cannot write the cache"):
        load()


def test_abandoned_folders_are_removed(load: Load) -> None:
    folders = [cache_root() / "tokens" / f".new-{name}" for name in ("old", "young")]
    for folder in folders:
        folder.mkdir(parents=True)
    os.utime(folders[0], (0, 0))
    load()
    assert [folder.exists() for folder in folders] == [False, True]


def test_losing_the_race_is_fine(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no locks, another process may finish the same entry while we are at it."""
    monkeypatch.setattr("plait.data.locks.lock", lambda _: True)
    first = load()
    encode, won = Tokenizer.encode, []

    def slow(self: Tokenizer, *args: Any, **settings: Any) -> Any:
        if not won:
            won.append(True)
            load(max_length=20)
        return encode(self, *args, **settings)

    monkeypatch.setattr(Tokenizer, "encode", slow)
    late = load(max_length=20)
    assert late.tokens[1].ids.tolist() == first.tokens[1].ids.tolist()
    assert len(entries()) == 2


def test_entries_without_hashes_are_found(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of earlier versions have none."""
    first = load()
    (entry,) = entries()
    meta = json.loads((entry / "meta.json").read_bytes())
    del meta["digests"]
    (entry / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    monkeypatch.setattr(Tokenizer, "encode", no_reading)
    assert same(load(), first)


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ([("fine",), ("",)], "example 1: the text is empty"),
        ([("fine", 3)], "example 0: 3 is not a text"),
        (["fine"], "example 0 is not a tuple of one text or two"),
        ([("a", "b", "c")], "example 0 is not a tuple of one text or two"),
        ([("a",), ("a", "b")], "some examples have one text and some two"),
        ([("\ud800",)], "example 0: the text holds a NUL or half a surrogate pair"),
    ],
)
def test_bad_free_texts(tokenizer: Tokenizer, texts: Any, told: str) -> None:
    with pytest.raises(DataError, match=told):
        Dataset.from_texts(texts, tokenizer, 16)


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


COURSE = {
    "ids-sst": (
        {"kind": "classes", "labels": 5, "text": "sentence", "label": "sentiment"},
        (8544, 1101, 2210),
    ),
    "ids-cfimdb": ({"kind": "binary", "text": "sentence", "label": "sentiment"}, (1707, 245, 488)),
    "quora": (
        {"kind": "binary", "text": ("sentence1", "sentence2"), "label": "is_duplicate"},
        (63_483, 20_212, 5000),
    ),
    "sts": (
        {
            "kind": "score",
            "range": (0, 5),
            "text": ("sentence1", "sentence2"),
            "label": "similarity",
        },
        (6040, 863, 1725),
    ),
}


@pytest.mark.parametrize("name", COURSE)
def test_course_files(shared: Path, name: str) -> None:
    """The real files are read whole (their rows counted, not tokenised)."""
    from plait.data.split import Split

    settings, counts = COURSE[name]
    files = {
        "train": f"{name}-train.csv",
        "dev": f"{name}-dev.csv",
        "test": f"{name}-test-student.csv",
    }
    task = TaskConfig.model_validate({"id": "id"} | settings | files)
    found = []
    for split in ("train", "dev", "test"):
        labelled = split != "test"
        source = Split(name, task, split, shared / "data" / "course", "skip", 1, labelled)  # type: ignore[arg-type]
        found.append(sum(len(rows) for rows in source.rows()))
    assert tuple(found) == counts
