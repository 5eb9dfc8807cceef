"""A task of any number of labels, to add to the tiny recipe."""

from __future__ import annotations

from pathlib import Path

from csv_rows import write_rows

LABELS_TASK = """
[tasks.moods]
kind = "labels"
labels = ["glad", "tired", "calm"]
label_separator = "/"
text = "text"
label = "moods"
id = "id"
head = "linear"
train = "moods-train.csv"
dev = "moods-dev.csv"
test = "moods-dev.csv"
"""


def write_labels(path: Path, count: int, shift: int = 0) -> None:
    """Write texts whose words tell their labels; every eighth has none."""
    words = {"glad": "happy", "tired": "dull", "calm": "mild"}
    rows = []
    for i in range(count):
        labels = [label for bit, label in enumerate(words) if (i + shift) >> bit & 1]
        said = " ".join([*(words[label] for label in labels), *["very"] * (i // 8)])
        rows.append({"id": f"r{i}", "text": f"the film was {said} .", "moods": "/".join(labels)})
    write_rows(path, rows)
