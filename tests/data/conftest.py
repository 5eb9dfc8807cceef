"""A small tokenizer and ways to write data files."""

from __future__ import annotations

import csv
import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from plait.data import Tokenizer

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT vocabulary of letters and a few words."""
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    words = ["good", "bad", "film", "the", "a b"]
    tokens = [*SPECIAL, *letters, *(f"##{c}" for c in letters), *words, *"0123456789.,!?'-"]
    path = tmp_path_factory.mktemp("tokenizer") / "vocab.txt"
    path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tokenizer(vocabulary: Path) -> Tokenizer:
    return Tokenizer.from_file(vocabulary)


@pytest.fixture
def roberta() -> tokenizers.Tokenizer:
    """A tokenizer that surrounds texts as RoBERTa does, padding and truncation switched on."""
    words = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5, "c": 6, "<mask>": 7}
    inner = tokenizers.Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    inner.enable_truncation(4)
    inner.enable_padding(pad_id=1, pad_token="<pad>")
    return inner


@pytest.fixture(scope="session")
def write_rows() -> Callable[[Path, list[dict[str, Any]]], Path]:
    """Write rows in the format that a file's name says."""
    return _write_rows


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    kind = [s for s in path.suffixes if s not in (".gz", ".xz")][-1]
    plain = path.with_name("plain" + kind)
    if kind == ".parquet":
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), plain)
    elif kind in (".jsonl", ".ndjson"):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        plain.write_text("".join(lines), encoding="utf-8")
    else:
        with plain.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if kind == ".tsv" else ",")
            writer.writerow(rows[0])
            writer.writerows([row.values() for row in rows])
    data = plain.read_bytes()
    plain.unlink()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    elif path.suffix == ".xz":
        data = lzma.compress(data)
    path.write_bytes(data)
    return path
