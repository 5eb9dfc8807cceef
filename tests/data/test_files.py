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
from hypothesis import given, settings
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


def test_course_format(tmp_path: Path) -> None:
    """Index columns with an empty or an odd name, tabs in a file named .csv, a byte order mark."""
    path = tmp_path / "test.csv"
    path.write_bytes("\ufeff0\t\tid\tsentence\n1\t0.0\tx1\t Effective, but\n".encode())
    assert read(path, "sentence", "id") == [[" Effective, but"], ["x1"]]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", ["", "\n"])
def test_line_ends(tmp_path: Path, ends: str, last: str) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(("a,b\n\n1,2\n3,4" + last).replace("\n", ends).encode())
    assert read(path, "b") == [["2", "4"]]


def test_quoting_off(tmp_path: Path) -> None:
    path = tmp_path / "data.tsv"
    path.write_text('a\tb\n"x\t1\n5" disk\t2\n', encoding="utf-8")
    assert read(path, "a", "b", quoting=False) == [['"x', '5" disk'], ["1", "2"]]


def test_separator(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("a;b,\tc\nx;y\n", encoding="utf-8")
    assert read(path, "a", separator=";") == [["x"]]
    with pytest.raises(DataError, match=r"separator '::' is not one plain character, such as ';'"):
        open_source(path, separator="::")


def test_header_alone_has_no_rows(tmp_path: Path) -> None:
    for text in ("a,b", "a,b\n"):
        (tmp_path / "data.csv").write_text(text, encoding="utf-8")
        assert read(tmp_path / "data.csv", "a") == [[]]


@pytest.mark.parametrize("careful", [False, True])
def test_chunks_are_small_and_numbered_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, careful: bool
) -> None:
    monkeypatch.setattr(Source, "chunk_bytes", 200)
    monkeypatch.setattr(Source, "chunk_rows", 7)
    rows = [f"{i},text {i}\n" for i in range(100)]
    if careful:
        rows.insert(2, "1,2,3\n")
    (tmp_path / "data.csv").write_text("id,text\n" + "".join(rows), encoding="utf-8")
    chunks = list(open_source(tmp_path / "data.csv").chunks(Columns(("text",))))
    assert len(chunks) > 5
    numbers = [n for chunk in chunks for n in chunk.numbers.tolist()]
    texts = [t.decode() for chunk in chunks for t in chunk.columns[0].to_pylist()]
    assert texts == [f"text {i}" for i in range(100)]
    assert numbers == [i for i in range(100 + careful) if not (careful and i == 2)]


def test_row_longer_than_a_chunk(
    tmp_path: Path, write_rows: WriteRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Source, "chunk_bytes", 64)
    texts = ["short", "x" * 200_000, "short again"]
    path = write_rows(tmp_path / "data.csv", [{"text": t, "n": 1} for t in texts])
    assert read(path, "text") == [texts]


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


def test_a_sign_inside_a_quoted_name_separates_nothing(tmp_path: Path) -> None:
    for header in ('"text; raw"', '"text, raw"', '"text\traw"'):
        (tmp_path / "data.csv").write_text(f"{header}\none; two\n", encoding="utf-8")
        source = open_source(tmp_path / "data.csv")
        assert source.names() == [header.strip('"')]
        assert source.separator == ","
    told = open_source(tmp_path / "data.csv", quoting=False)
    assert told.names() == ['"text', 'raw"']  # a quote is a sign like others there


def test_missing_column_may_be_a_wrong_separator(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("id|text\n1|x\n", encoding="utf-8")
    for name in ("sentence", "text", "idtext"):
        told = (
            r"has 'id\|text'; is '\|' between its columns\? "
            r"Say separator = '\|', or --separator '\|'$"
        )
        with pytest.raises(DataError, match=told):
            read(tmp_path / "data.csv", name)
    (tmp_path / "one.csv").write_text("words\nx\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"the file has 'words'$"):
        read(tmp_path / "one.csv", "sentence")


def test_ambiguous_column(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("a,a\n1,2\n", encoding="utf-8")
    with pytest.raises(DataError, match="column 'a' appears more than once"):
        read(tmp_path / "data.csv", "a")


@pytest.mark.parametrize("text", ['a,b\n1,x\n\n2,"open\n3,y\n', 'a,b\n1,x\n\n"2,open\n3,y\n'])
def test_open_quote(tmp_path: Path, text: str) -> None:
    """Whichever column it is in, what follows is not swallowed in silence."""
    (tmp_path / "data.csv").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"data.csv, line 4: a quote opened .* never closed"):
        read(tmp_path / "data.csv", "a")


def test_a_newline_in_the_last_field_is_no_open_quote(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text('a,b\n"x"y,"two\nlines"\n', encoding="utf-8")
    assert read(tmp_path / "data.csv", "a", "b") == [["xy"], ["two\nlines"]]


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
        ("x.csv", b"sep=;\r\nid;text\r\n", "line 1: the line is for Excel alone; take it out"),
        ("x.csv.gz", b"not gzip", "cannot be read: Not a gzipped file"),
        ("x.csv.gz", compress(b"text\n" + b"abc\n" * 999)[:-12], "cannot be read: Compressed"),
        ("x.csv.xz", b"not xz", "cannot be read"),
        ("x.jsonl.gz", compress(b'{"text": "x"}\n' * 999)[:-12], "cannot be read"),
        ("x.parquet", b"not parquet", "is not sound Parquet"),
        ("x.parquet.gz", compress(b"not parquet"), "is not sound Parquet"),
        ("x.json", b"[]", "one object a line, from a file named .jsonl"),
    ],
)
def test_damaged_files(tmp_path: Path, name: str, data: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=told):
        read(tmp_path / name, "text")


def test_damaged_parquet_page(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pyarrow.parquet.write_table(pa.table({"text": ["abc"] * 50}), path, compression="gzip")
    data = bytearray(path.read_bytes())
    data[4:30] = b"\xff" * 26
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"x\.parquet"):
        read(path, "text")


def test_parquet_of_numbers_is_no_text(tmp_path: Path, write_rows: WriteRows) -> None:
    path = write_rows(tmp_path / "x.parquet", [{"text": 1}])
    with pytest.raises(DataError, match="column 'text' holds int64, not text"):
        read(path, "text")


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@settings(max_examples=150)
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


def test_a_line_end_inside_quotes_survives_the_end_of_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 63 bytes up to and including the CR, so that a block of 63 ends between CR and LF
    head = b'id,text\r\n0,"'
    row = head + b"a" * (62 - len(head)) + b'\r\nb"\r\n'
    path = tmp_path / "data.csv"
    path.write_bytes(row)
    for size in range(60, 68):
        monkeypatch.setattr(Source, "chunk_bytes", size)
        reader = RowReader(open_source(path), Columns(("text",), id="id"), None, "error")
        texts = [text for chunk in reader for text in chunk.texts[0].to_pylist()]
        assert texts == ["a" * (62 - len(head)) + "\r\nb"], size


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


def test_parquet_of_very_long_texts_comes_in_smaller_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.data.parquet.MOST_BYTES", 10_000)
    path = tmp_path / "a.parquet"
    texts = [f"{i} " + "x" * 1000 for i in range(50)]
    table = pa.table({"text": texts, "short": ["x"] * len(texts)})
    pyarrow.parquet.write_table(table, path)
    chunks = list(open_source(path).chunks(Columns(("text",))))
    assert [text for chunk in chunks for text in chunk.columns[0].to_pylist()] == texts
    assert {len(chunk.numbers) for chunk in chunks[:-1]} <= {9, 10}
    assert (
        len(list(open_source(path).chunks(Columns(("short",))))) == 1
    )  # the long ones are not read
