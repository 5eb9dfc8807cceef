"""Every kind of bad row is found, in every format that can have it, at its true line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from plait.config import BadRows
from plait.data.files import open_source
from plait.data.rows import FileReport, RowReader
from plait.data.source import Columns
from plait.errors import DataError
from plait.tasks import TaskSpec
from plait.tasks.reading import LabelError, LabelReader

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


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize(("spec", "label", "reason", "sentence"), BAD_LABELS)
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
        (b"b,caf\xe9,1", "not UTF-8", "column 'text' is not UTF-8; save the file as UTF-8"),
        (b"\xe9,cafe,1", "not UTF-8", "column 'id' is not UTF-8"),
        (b"b,cafe,\xe9", "not UTF-8", "the label is not UTF-8"),
        (b"b,cafe", "wrong number of columns", "the row has 2 columns, the header 3"),
        (b"b", "wrong number of columns", "the row has 1 column, the header 3"),
        (b"b,one,more,1", "wrong number of columns", "the row has 4 columns, the header 3; a text"),
        (b"\xe9,caf\xe9,more,1", "wrong number of columns", "the row has 4 columns"),
        (b"b,,1", "empty text", "column 'text' is empty"),
        (b"b,,", "missing label", "the label is missing"),
    ],
)
def test_bad_rows_after_long_ones(tmp_path: Path, line: bytes, reason: str, sentence: str) -> None:
    """Lines inside quotes, blank lines and odd line ends all count."""
    path = tmp_path / "data.csv"
    before = b'id,text,label\na,"one\ntwo\n\nthree",1\n\n\na,"say ""x""\r\n",2\r\n'  # lines 1-9
    path.write_bytes(before + line + b"\na,last,3\n" + line + b"\n")
    with pytest.raises(DataError, match=f", line 10: {sentence}") as error:
        read(path)
    assert (error.value.path, error.value.line) == (path, 10)
    texts, values, report = read(path, bad_rows="skip")
    assert texts == ["one\ntwo\n\nthree", 'say "x"', "last"]
    assert values == [1, 2, 3]
    assert report.skipped == {reason: 2}
    assert report.places == ("line 10", "line 12")
    assert str(report) == f"data.csv: 2 rows skipped (2 {reason}; first at line 10)"


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


def test_missing_key_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text('{"txt": "x", "id": 1}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"the line has 'txt', 'id'; did you mean 'txt'\?"):
        read(tmp_path / "data.jsonl")


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (pa.array([1, None, 2]), "missing label"),
        (pa.array([1.0, float("nan"), 2.0]), "missing label"),
        (pa.array([1.0, 1.5, 2.0]), "label out of range"),
        (pa.array([1, 9, 2], pa.uint8()), "label out of range"),
        (pa.array(["1", None, "2.0"]), "missing label"),
        (pa.array(["1", "x", "2"]).dictionary_encode(), "unknown label"),
        (pa.array([b"1", b"\xff", b"2"]), "not UTF-8"),
    ],
)
def test_bad_parquet_labels(tmp_path: Path, labels: Any, reason: str) -> None:
    path = tmp_path / "data.parquet"
    table = pa.table({"id": [7, 8, 9], "text": ["a", "b", "c"], "label": labels})
    pyarrow.parquet.write_table(table, path)
    with pytest.raises(DataError, match=r"data\.parquet: row 2: "):
        read(path)
    texts, values, report = read(path, bad_rows="skip")
    assert (texts, values, report.skipped) == (["a", "c"], [1, 2], {reason: 1})


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()])
def test_bad_parquet_texts(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "data.parquet"
    broken = pa.array([b"a", None, b"\xe9", b"d"], pa.binary())
    text = (
        broken
        if pa.types.is_binary(kind)
        else broken.cast(pa.large_binary()).cast(kind, safe=False)
    )
    pyarrow.parquet.write_table(pa.table({"text": text}), path)
    texts, _, report = read(path, bad_rows="skip", columns=Columns(("text",)))
    assert texts == ["a", "d"]
    assert report.skipped == {"empty text": 1, "not UTF-8": 1}
    assert report.places == ("row 2", "row 3")


def test_first_of_several_is_told(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("id,text,label\n1,,1\n2,x,9\n3\n4,x,\n5,x,1\n", encoding="utf-8")
    with pytest.raises(
        DataError, match="line 2: column 'text' is empty; fill it in, or pass over it"
    ):
        read(path)
    _, values, report = read(path, bad_rows="skip")
    assert values == [1]
    assert sum(report.skipped.values()) == 4
    assert report.places == ("line 2", "line 3", "line 4")
    assert report.first == "column 'text' is empty"


def test_unlabelled_rows_all_come_back(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("id,text,label\n1,a,\n2, b ,x\n3,c,1\n", encoding="utf-8")
    assert read(path, columns=Columns(("text",), id="id"))[0] == ["a", "b", "c"]


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


@pytest.mark.parametrize(
    ("spec", "label_map", "written"),
    [
        (FIVE, {"1": 0, "5": 4}, "0"),  # the map starts at 1: 0 is not a class here
        (TaskSpec(kind="classes", labels=("1", "2", "3"), text="text"), {}, "0"),
        (MIXED, {"5": 0}, "1"),  # the map says which numbers there are
        (MOOD, {}, "true"),
        (MOOD, {"up": 7}, "up"),
        (MOOD, {"up": 0.5}, "up"),
    ],
)
def test_numbers_are_not_guessed(spec: TaskSpec, label_map: dict[str, float], written: str) -> None:
    with pytest.raises(LabelError):
        make_reader(spec, label_map).read(written)


def test_json_numbers_are_matched_as_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    lines = [json.dumps({"text": "x", "label": n}) + "\n" for n in (1, 1.0, "1", True)]
    path.write_text("".join(lines), encoding="utf-8")
    columns = Columns(("text",), ("label",))
    assert read(path, columns=columns, label_map={"1": 3, "true": 2})[1] == [3, 3, 3, 2]


def test_quora_dev(shared: Path) -> None:
    path = shared / "data" / "course" / "quora-dev.csv"
    spec = TaskSpec(kind="binary", text=("sentence1", "sentence2"))
    columns = Columns(spec.text, ("is_duplicate",), "id")
    with pytest.raises(DataError, match=r"quora-dev\.csv, line 2577: the label is missing"):
        read(path, spec, columns=columns)
    texts, _, report = read(path, spec, "skip", columns)
    assert len(texts) == 20_212
    assert str(report) == "quora-dev.csv: 2 rows skipped (2 missing label; first at line 2577)"
    assert report.places == ("line 2577", "line 14222")
