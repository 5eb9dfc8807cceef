"""The page on the embedded sample says what the files are."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest
from doc_blocks import ROOT, SAMPLE

PAGE = (ROOT / "docs" / "sample.md").read_text(encoding="utf-8")
TEXTS = {
    "sentiment": ["sentence"],
    "paraphrase": ["question1", "question2"],
    "similarity": ["sentence1", "sentence2"],
}


def rows(task: str, split: str) -> list[dict[str, str]]:
    with (SAMPLE / f"{task}-{split}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def labels(task: str, split: str) -> np.ndarray:
    return np.array([float(row[task]) for row in rows(task, split)])


def shared_words(task: str, split: str) -> np.ndarray:
    """Share of the distinct words of two texts that both have."""
    pairs = [[words(row[name]) for name in TEXTS[task]] for row in rows(task, split)]
    return np.array([len(a & b) / len(a | b) for a, b in pairs])


def words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9']+", text.lower()))


def row_of(start: str) -> list[str]:
    line = next(line for line in PAGE.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.parametrize("task", TEXTS)
def test_sizes(task):
    assert row_of(f"`{task}`")[2] == f"{len(rows(task, 'train'))} / {len(rows(task, 'dev'))}"


def test_how_far_shared_words_get():
    shown = row_of("paraphrase: accuracy")[1:]
    for split, figure in zip(("train", "dev"), shown, strict=True):
        same, overlap = labels("paraphrase", split), shared_words("paraphrase", split)
        best = max(
            max(((overlap >= t) == same).mean(), ((overlap < t) == same).mean()) for t in overlap
        )
        assert f"{best:.3f}" == f"0{figure}"
    shown = row_of("similarity: Pearson")[1:]
    for split, figure in zip(("train", "dev"), shown, strict=True):
        r = np.corrcoef(labels("similarity", split), shared_words("similarity", split))[0, 1]
        assert f"{r:.2f}" == f"0{figure}"
