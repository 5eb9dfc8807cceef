"""Fingerprints are blind to what does not matter, and to nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.config import TaskConfig
from plait.data import Dataset, Tokenizer, load_split, shared_examples
from plait.data.fingerprints import fingerprint


def prints(*columns: list[str]) -> list[int]:
    return fingerprint([pa.array(column, pa.string()) for column in columns]).tolist()


def test_blind_to_case_punctuation_and_space() -> None:
    found = prints(["It's GOOD, really!", "its  good\treally", "  its good really ?"])
    assert len(set(found)) == 1


def test_not_blind_to_words() -> None:
    texts = ["its good", "good its", "itsgood", "its goods", "its", "it s good", "?!", "...", "é"]
    assert len(set(prints(texts))) == len(texts)


def test_pairs_in_either_order() -> None:
    first, second, other = prints(["a", "b", "a"], ["b", "a", "a"])
    assert first == second != other
    assert len(set(prints(["a", "c"], ["a", "c"]))) == 2  # equal texts do not cancel out


def test_does_not_depend_on_the_neighbours() -> None:
    texts = ["one", "", "twenty two", "three"]
    assert prints(texts) == [prints([text])[0] for text in texts]
    sliced = pa.array(["zero", *texts, "four"], pa.string()).slice(1, 4)
    assert fingerprint([sliced]).tolist() == prints(texts)
    assert prints([]) == []


@given(st.lists(st.text("ab ", max_size=6), min_size=1))
def test_equal_exactly_where_texts_are(texts: list[str]) -> None:
    plain = [" ".join(text.split()) or text for text in texts]
    assert len(set(prints(texts))) == len(set(plain))


@pytest.mark.parametrize("chunk", [1, 2, 100])
def test_shared_examples(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr("plait.data.fingerprints.CHUNK", chunk)
    train = Dataset.from_texts([("a", "b"), ("c", "d"), ("e", "f")], tokenizer, 16)
    dev = Dataset.from_texts([("x", "y"), ("B.", "A"), ("b", "a"), ("c", "D!")], tokenizer, 16)
    found = shared_examples(train, dev)
    assert (found.count, found.ids) == (2, ("1", "3"))
    assert shared_examples(train, dev, num_ids=1).ids == ("1",)


@pytest.mark.parametrize(("name", "count"), [("sts", 17), ("ids-sst", 2)])
def test_course_overlap(shared: Path, tokenizer: Tokenizer, name: str, count: int) -> None:
    text = ("sentence1", "sentence2") if name == "sts" else ("sentence",)
    files = {"train": f"{name}-train.csv", "dev": f"{name}-dev.csv"}
    task = TaskConfig.model_validate({"kind": "score", "text": text, "id": "id"} | files)
    train, dev = (
        load_split(
            name,
            task,
            split,
            root=shared / "data" / "course",
            tokenizer=tokenizer,
            max_length=16,
            bad_rows="error",
            seed=1,
            labelled=False,
        )
        for split in ("train", "dev")
    )
    assert shared_examples(train, dev).count == count

    def bare(row: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted(" ".join(re.sub(r"[^\w\s]", "", t.lower()).split()) for t in row))

    both = {bare(row) for row in train.texts()} & {bare(row) for row in dev.texts()}
    assert len(both) == count
    assert len(np.unique(dev.fingerprints)) == len({bare(row) for row in dev.texts()})
