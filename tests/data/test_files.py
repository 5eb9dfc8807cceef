"""Every format gives the same columns, and damage is told in a sentence."""

from __future__ import annotations

import csv
import gzip
import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.data.files import open_source
from plait.data.rows import RowReader
from plait.data.source import Columns, Source, pieces
from plait.errors import DataError

WriteRows = Callable[[Path, list[dict[str, Any]]], Path]

ROWS = [
    {"id": "a1", "text": " ein Satz, mit Komma", "label": "1"},
    {"id": "a2", "text": 'say "no"', "label": "0.0"},
    {"id": "a3", "text": "zwei\nZeilen ☃", "label": "3"},
]
FORMATS = ["csv", "tsv", "txt", "jsonl", "ndjson", "parquet"]


def read(path: Path, *columns: str, **options: object) -> list[list[object]]:
    """Return the columns of a file as lists of str."""
    source = open_source(path, **options)  # type: ignore[arg-type]
    found: list[list[object]] = [[] for _ in columns]
    for chunk in source.chunks(Columns(columns)):
        assert len(chunk.numbers) == len(chunk.columns[0])
        for values, array in zip(found, chunk.columns, strict=True):
            values += [v.decode() if isinstance(v, bytes) else v for v in array.to_pylist()]
    return found


@pytest.mark.parametrize("packing", ["", ".gz", ".xz"])
@pytest.mark.parametrize("kind", FORMATS)
def test_formats_agree(tmp_path: Path, write_rows: WriteRows, kind: str, packing: str) -> None:
    path = write_rows(tmp_path / f"data.{kind}{packing}", ROWS)
    assert read(path, "text", "id") == [[r["text"] for r in ROWS], [r["id"] for r in ROWS]]


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet"])
def test_missing_column(tmp_path: Path, write_rows: WriteRows, kind: str) -> None:
    path = write_rows(tmp_path / f"data.{kind}", ROWS)
    with pytest.raises(DataError) as error:
        read(path, "txet")
    assert str(error.value) == (
        f"{path}: there is no column 'txet'; the file has 'id', 'text', 'label'; "
        "did you mean 'text'?"
    )


@pytest.mark.parametrize(
    ("name", "header", "columns"),
    [
        ("data.csv", "id;text", ["id", "text"]),
        ("data.csv", '\ufeff"id";"text"', ["id", "text"]),
        ("data.csv", "id,text;label", ["id", "text;label"]),
        ("data.csv", "id;no\ttext", ["id;no", "text"]),
        ("data.tsv", "id;text", ["id;text"]),
        ("data.csv", '"text, as it came";label', ["text, as it came", "label"]),
        ("data.csv", '"text ""a, b""";label', ['text "a, b"', "label"]),
    ],
)
def test_semicolons_are_found_where_nothing_else_separates(
    tmp_path: Path, name: str, header: str, columns: list[str]
) -> None:
    (tmp_path / name).write_text(f"{header}\n", encoding="utf-8")
    assert open_source(tmp_path / name).names() == columns


def compress(data: bytes) -> bytes:
    """Make the same bytes each time: they are part of the tests' names."""
    return gzip.compress(data, mtime=0)


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("x.csv", b"", "the file is empty"),
        ("x.csv", b"\n\n", "the file is empty"),
        ("x.csv", "id,text\n".encode("utf-16"), "the file is UTF-16; save it as UTF-8"),
        ("x.csv", b"PK\x03\x04\0\0", "line 1: the header is not UTF-8 text; .* spreadsheet as CSV"),
        (
            "x.csv",
            b"sep=;\r\nid;text\r\n",
            "line 1: remove this line, which only Excel understands",
        ),
        ("x.csv.gz", b"not gzip", "cannot be read: Not a gzipped file"),
        ("x.csv.gz", compress(b"text\n" + b"abc\n" * 999)[:-12], "cannot be read: Compressed"),
        ("x.csv.xz", b"not xz", "cannot be read"),
        ("x.jsonl.gz", compress(b'{"text": "x"}\n' * 999)[:-12], "cannot be read"),
        ("x.parquet", b"not parquet", "is not a valid Parquet file"),
        ("x.parquet.gz", compress(b"not parquet"), "is not a valid Parquet file"),
        ("x.json", b"[]", "one object per line, in a file that ends in .jsonl"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, data: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=told):
        read(tmp_path / name, "text")


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(
    rows=st.lists(st.tuples(TEXT, TEXT.filter(str.strip)), min_size=1),
    separator=st.sampled_from([",", "\t"]),
    chunk=st.sampled_from([64, 1 << 20]),
)
def test_what_csv_writes_is_read(rows: list[tuple[str, str]], separator: str, chunk: int) -> None:
    """Arbitrary text written by Python's csv comes back as it was, but for space around it."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator)
    writer.writerow(["id", "text"])
    writer.writerows(rows)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Source, "chunk_bytes", chunk)
        path = Path(folder) / "data.csv"
        path.write_bytes(text.getvalue().encode())
        source = open_source(path)
        reader = RowReader(source, Columns(("text",), id="id"), None, "error")
        found = [
            pair
            for chunk in reader
            for pair in zip(chunk.ids.to_pylist(), chunk.texts[0].to_pylist(), strict=True)
        ]
        assert found == [(name, sentence.strip()) for name, sentence in rows]
        # and each row is found where Python's csv finds it
        lines = source.lines(range(len(rows)))
        assert lines == sorted(lines)
        assert len(set(lines)) == len(rows)


@given(st.lists(st.text("aé☃", max_size=5), max_size=20), st.integers(1, 30), st.integers(0, 3))
def test_pieces(texts: list[str], num_bytes: int, skip: int) -> None:
    array = pa.array(texts, pa.string()).slice(skip)
    found = [piece.to_pylist() for piece in pieces(array, num_bytes)]
    assert [text for piece in found for text in piece] == texts[skip:]
    sizes = [sum(len(text.encode()) for text in piece) for piece in found]
    assert all(size <= num_bytes or len(p) == 1 for size, p in zip(sizes, found, strict=True))
    # None could have taken the next one in as well.
    firsts = [len(piece[0].encode()) for piece in found[1:]]
    assert all(size + more > num_bytes for size, more in zip(sizes, firsts, strict=False))


@pytest.mark.parametrize("group", [1, 7, 10, 64, 1000])
def test_parquet_comes_in_chunks_of_one_size_whatever_its_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: int
) -> None:
    monkeypatch.setattr(Source, "chunk_rows", 10)
    path, count = tmp_path / "a.parquet", 95
    words = [f"w{i % 3}-{i // 40}" for i in range(count)]
    table = {"text": [f"text {i}" for i in range(count)], "label": words}
    table["coded"] = pa.array(words).dictionary_encode()
    pyarrow.parquet.write_table(pa.table(table), path, row_group_size=group)
    names = ("text", "label")
    whole = pyarrow.parquet.ParquetFile(path).iter_batches(10, columns=names)
    chunks = open_source(path).chunks(Columns(("text",), ("label",), "coded"))
    for chunk, batch in zip(chunks, whole, strict=True):
        *found, coded = [column.to_pylist() for column in chunk.columns]
        assert found == [batch.column(name).to_pylist() for name in names]
        assert coded == found[1]
