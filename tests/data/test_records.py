"""Files become slices of whole rows: nothing lost, whatever the slices, with types kept."""

from __future__ import annotations

import datetime
import decimal
import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from plait.data import RecordFile
from plait.data.source import Source

ROWS = [
    {"name": f"n{i}", "a": f" text {i} ", "b": 'one, "two"\nthree' if i % 3 else "x"}
    for i in range(23)
]
KINDS = ["csv", "tsv", "csv.gz", "jsonl", "jsonl.xz", "parquet", "parquet.gz"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("size", "start"), [(1, 0), (4, 0), (5, 10), (100, 0), (7, 22), (3, 23)])
def test_every_row_comes_once_and_as_it_stands(
    tmp_path, write_rows, monkeypatch, kind, size, start
):
    monkeypatch.setattr(Source, "chunk_rows", 6)  # several chunks, which are not the slices
    monkeypatch.setattr(Source, "chunk_bytes", 300)
    file = RecordFile(write_rows(tmp_path / f"x.{kind}", ROWS), ["a", "b"], ["name"])
    slices = list(file.slices(size, start))
    assert [row for part in slices for row in part.rows()] == ROWS[start:]
    assert [n for part in slices for n in part.numbers.tolist()] == list(range(start, 23))
    assert {len(part) for part in slices[:-1]} <= {size}
    texts = [pair for part in slices for pair in part.examples(["b", "a"])]
    assert texts == [(row["b"], row["a"].strip()) for row in ROWS[start:]]


def test_types_of_parquet_are_kept(tmp_path):
    when = datetime.datetime(2024, 2, 29, 12, 30)
    table = pa.table(
        {
            "text": ["one", "two"],
            "n": pa.array([1, None], pa.int32()),
            "x": [0.5, float("nan")],
            "when": pa.array([when, None], pa.timestamp("ns")),
            "price": pa.array([decimal.Decimal("1.10"), None]),
            "raw": pa.array([b"\xff", b"a"]),
            "list": [[1, 2], []],
            "kind": pa.array(["u", "v"]).dictionary_encode(),
        }
    )
    pa.parquet.write_table(table, tmp_path / "x.parquet")
    file = RecordFile(tmp_path / "x.parquet", ["text"], ["n"])
    survey = file.survey()
    part = next(file.slices(10))
    arrays = part.arrays(survey.schema)
    again = pa.Table.from_arrays(arrays, schema=survey.schema)
    kept = table.set_column(7, "kind", table["kind"].cast(pa.string()))
    assert again.drop_columns(["x"]).equals(kept.drop_columns(["x"]))
    row = part.rows()[0]
    assert (row["when"], row["price"], row["raw"]) == ("2024-02-29 12:30:00.000000000", "1.10", "�")
    assert (row["list"], row["kind"], part.rows()[1]["n"]) == ([1, 2], "u", None)


def test_objects_of_json_find_a_type(tmp_path):
    rows = [
        {"text": "a", "n": 1, "x": 1, "mixed": 1, "deep": {"k": [1]}, "yes": True},
        {"text": "b", "n": 2, "x": 0.5, "mixed": "one", "huge": 2**70, "late": None},
    ]
    path = tmp_path / "x.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    file = RecordFile(path, ["text"], ["n"])
    schema = file.survey().schema
    kinds = {field.name: str(field.type) for field in schema}
    assert kinds == {
        "text": "string",
        "n": "int64",
        "x": "double",
        "mixed": "string",
        "deep": "string",
        "yes": "bool",
        "huge": "string",
        "late": "string",
    }
    part = next(file.slices(9))
    assert part.rows() == rows  # keys that are not there do not appear
    columns = dict(zip(schema.names, (a.to_pylist() for a in part.arrays(schema)), strict=True))
    assert columns["mixed"] == ["1", "one"]
    assert columns["deep"] == ['{"k": [1]}', None]
    assert columns["huge"] == [None, str(2**70)]
    assert columns["x"] == [1.0, 0.5]
