"""Every kind of bad row is found, in every format that can have it, at its true line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from plait.config import BadRows
from plait.data.files import open_source
from plait.data.rows import FileReport, RowReader
from plait.data.source import Columns
from plait.errors import DataError
from plait.tasks import TaskSpec
from plait.tasks.reading import LabelReader

FIVE = TaskSpec(kind="classes", labels=5, text="text")
MIXED = TaskSpec(kind="classes", labels=("0", "2", "1"), text="text")
MOOD = TaskSpec(kind="classes", labels=("sad", "so-so", "Glad"), text="text")
YES_NO = TaskSpec(kind="binary", text="text")
SCORE = TaskSpec(kind="score", range=(0, 5), text="text")
COLUMNS = Columns(("text",), ("label",), "id")

WriteRows = Callable[[Path, list[dict[str, Any]]], Path]


def make_reader(spec: TaskSpec, label_map: dict[str, float]) -> LabelReader:
    return spec.kind.reader(("label",), label_map, separator=";", scale=None)


def read(
    path: Path,
    spec: TaskSpec = FIVE,
    bad_rows: BadRows = "error",
    columns: Columns = COLUMNS,
    label_map: dict[str, float] | None = None,
) -> tuple[list[str], list[float], FileReport]:
    """Return texts, labels and the report of a file."""
    labels = make_reader(spec, label_map or {}) if columns.labels else None
    reader = RowReader(open_source(path), columns, labels, bad_rows)
    texts: list[str] = []
    values: list[float] = []
    for rows in reader:
        texts += rows.texts[0].to_pylist()
        values += [] if rows.labels is None else rows.labels.tolist()
    return texts, values, reader.report()


# What a bad value makes of a row that is otherwise good: value, reason, sentence.
BAD_LABELS: list[tuple[TaskSpec, Any, str, str]] = [
    (FIVE, "", "missing label", "the label is missing"),
    (FIVE, "  ", "missing label", "the label is missing"),
    (FIVE, "NaN", "missing label", "the label is missing"),
    (FIVE, "good", "unknown label", "label 'good' is none of 0, 1, 2, 3, 4; name it in label_map"),
    (FIVE, "5", "label out of range", "label '5' is not 0 to 4; where labels begin at 1, say so"),
    (FIVE, "6", "label out of range", "label '6' is not 0 to 4"),
    (FIVE, "-1", "label out of range", "label '-1' is not 0 to 4"),
    (FIVE, "1.5", "label out of range", "label '1.5' is not a whole class number"),
    (FIVE, "inf", "label out of range", "label 'inf' is not a whole class number"),
    (FIVE, "1_0", "unknown label", "label '1_0' is none of"),
    (MOOD, "3", "label out of range", "label '3' is not 0 to 2"),
    (MOOD, "1.5", "label out of range", "label '1.5' is not a whole class number"),
    (MOOD, "happy", "unknown label", "label 'happy' is none of sad, so-so, Glad"),
    (YES_NO, "2", "label out of range", "label '2' is not 0 or 1"),
    (YES_NO, "0.5", "label out of range", "label '0.5' is not a whole class number"),
    (SCORE, "5.01", "label out of range", "label '5.01' is outside the range 0 to 5"),
    (SCORE, "-0.1", "label out of range", "label '-0.1' is outside the range 0 to 5"),
    (SCORE, "inf", "label out of range", "label 'inf' is outside the range 0 to 5"),
    (SCORE, "much", "unknown label", "label 'much' is not a number; name it in label_map"),
    (SCORE, "3,7", "unknown label", "label '3,7' is not a number; write 3.7, with a point"),
]


KINDS = ("csv", "tsv", "jsonl", "parquet")


@pytest.mark.parametrize(
    ("spec", "label", "reason", "sentence", "kind"),
    [(*row, KINDS[i % 4]) for i, row in enumerate(BAD_LABELS)],
)
def test_bad_labels(
    tmp_path: Path,
    write_rows: WriteRows,
    kind: str,
    spec: TaskSpec,
    label: str,
    reason: str,
    sentence: str,
) -> None:
    good = {"id": "1", "text": "one", "label": "1"}
    path = write_rows(
        tmp_path / f"data.{kind}", [good, good, {"id": "2", "text": "two", "label": label}, good]
    )
    place = {
        "csv": ", line 4: ",
        "tsv": ", line 4: ",
        "jsonl": ", line 3: ",
        "parquet": ": row 3: ",
    }
    with pytest.raises(DataError, match=f"^{re.escape(f'{path}{place[kind]}{sentence}')}"):
        read(path, spec)
    texts, _, report = read(path, spec, "skip")
    assert texts == ["one"] * 3
    assert report.skipped == {reason: 1}
    assert (report.rows, report.places) == (3, (place[kind].strip(",: "),))


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize(
    ("text", "reason", "sentence"),
    [
        ("", "empty text", "column 'text' is empty"),
        (" \t\u3000\x1f", "empty text", "column 'text' is empty"),
        ("nu\0l", "NUL byte", "column 'text' holds a NUL byte"),
    ],
)
def test_bad_texts(
    tmp_path: Path, write_rows: WriteRows, kind: str, text: str, reason: str, sentence: str
) -> None:
    good = {"id": "1", "text": "one", "label": "1"}
    path = write_rows(tmp_path / f"data.{kind}", [good, {**good, "text": text}, good])
    place = {"csv": ", line 3", "tsv": ", line 3", "jsonl": ", line 2", "parquet": ": row 2"}
    with pytest.raises(DataError, match=re.escape(f"{path}{place[kind]}: {sentence}")):
        read(path, columns=Columns(("text",)))
    assert read(path, bad_rows="skip")[2].skipped == {reason: 1}


@pytest.mark.parametrize(
    ("line", "reason", "sentence"),
    [
        (b'{"id": 1, "text": "x"', "broken JSON", "the line is not JSON: Expecting"),
        (b"[1, 2]", "broken JSON", "the line holds a list, not a JSON object"),
        (b'{"id": 1, "txt": "x", "label": 1}', "missing key", "there is no key 'text'; the line"),
        (b'{"id": 1, "text": 7, "label": 1}', "text is not a string", "'text' is 7, not a text"),
        (b'{"id": 1, "text": ["x"], "label": 1}', "text is not a string", "not a text"),
        (b'{"id": 1, "text": null, "label": 1}', "empty text", "column 'text' is empty"),
        (b'{"id": 1, "text": "x", "label": null}', "missing label", "the label is missing"),
        (b'{"id": 1, "text": "x", "label": NaN}', "missing label", "the label is missing"),
        (
            b'{"id": 1, "text": "x", "label": 1.5}',
            "label out of range",
            "label '1.5' is not a whole",
        ),
        (b'{"id": 1, "text": "x", "label": [1]}', "unknown label", "the label is a list"),
        (b'{"id": 1, "text": "\xe9", "label": 1}', "not UTF-8", "the line is not UTF-8"),
        (b'{"id": 1, "text": "\\ud800", "label": 1}', "not UTF-8", "half a surrogate pair"),
        (b"[" * 100_000, "broken JSON", "the line is not JSON"),
    ],
)
def test_bad_json(tmp_path: Path, line: bytes, reason: str, sentence: str) -> None:
    path = tmp_path / "data.jsonl"
    good = b'{"label": 4.0, "id": 5, "text": "fine", "more": {}}'
    path.write_bytes(b"\xef\xbb\xbf" + good + b"\n\n" + line + b"\r\n" + good)
    with pytest.raises(DataError, match=f"data.jsonl, line 3: .*{sentence}"):
        read(path)
    texts, values, report = read(path, bad_rows="skip")
    assert (texts, values) == (["fine"] * 2, [4, 4])
    assert report.skipped == {reason: 1}
    assert report.places == ("line 3",)


def test_ids(tmp_path: Path, write_rows: WriteRows) -> None:
    rows = [{"id": n, "text": "x"} for n in (10, 20)]
    for kind, name, ids in [
        ("csv", "id", ["10", "20"]),
        ("jsonl", "id", ["10", "20"]),
        ("parquet", "id", ["10", "20"]),
        ("csv", None, ["0", "1"]),
        ("parquet", None, ["0", "1"]),
    ]:
        path = write_rows(tmp_path / f"data.{kind}", rows)
        reader = RowReader(open_source(path), Columns(("text",), id=name), None, "error")
        assert [i for chunk in reader for i in chunk.ids.to_pylist()] == ids


@pytest.mark.parametrize(
    ("spec", "label_map", "written", "value"),
    [
        (FIVE, {}, "4", 4),
        (FIVE, {}, "4.0", 4),
        (FIVE, {}, " 4 ", 4),
        (MOOD, {}, "glad", 2),
        (MOOD, {}, "SAD", 0),
        (MOOD, {}, "1.0", 1),
        (MOOD, {"up": 2}, "up", 2),
        (MOOD, {"up": 2}, "sad", 0),
        (MOOD, {"up": 2}, "1", 1),
        (FIVE, {"1": 0, "5": 4}, "1", 0),
        (FIVE, {"1": 0, "5": 4}, "5.0", 4),
        (YES_NO, {}, "Yes", 1),
        (YES_NO, {}, "false", 0),
        (YES_NO, {}, "TRUE", 1),
        (MIXED, {}, "0", 0),
        (MIXED, {}, "2", 1),  # by its word, not by its number
        (MIXED, {}, "1.0", 2),
        (MOOD, {" up ": 2}, "up", 2),
        (YES_NO, {"entailment": 1, "neutral": 0}, "neutral", 0),
        (SCORE, {}, "4.25", 4.25),
        (SCORE, {}, "1e0", 1),
        (SCORE, {"same": 5}, "same", 5),
    ],
)
def test_labels(spec: TaskSpec, label_map: dict[str, float], written: str, value: float) -> None:
    assert make_reader(spec, label_map).read(written) == value
