"""The tokenizer's ids, its layout of special tokens, and what goes wrong with its files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tokenizers

from plait.data import Layout, Tokenizer
from plait.errors import EncoderError


def test_bert_layout(tokenizer: Tokenizer) -> None:
    assert tokenizer.layout == Layout(((2,), (3,)), ((2,), (3,), (3,)), 1, 0)
    assert (tokenizer.pad_id, tokenizer.mask_id) == (0, 4)
    assert (tokenizer.layout.num_single, tokenizer.layout.num_pair) == (2, 3)


def test_roberta_layout(tmp_path: Path, roberta: tokenizers.Tokenizer) -> None:
    roberta.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert tokenizer.layout == Layout(((0,), (2,)), ((0,), (2, 2), (2,)), 0, 1)
    assert tokenizer.mask_id == 7


def test_encode(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.data.words.BATCH", 2)
    texts = ["The GOOD film", "bad", "xyz!", "", "☃ a"]
    flat, lengths = tokenizer.encode(texts, limit=2)
    assert flat.dtype == lengths.dtype == np.int32
    assert lengths.tolist() == [3, 1, 4, 0, 2]  # before the cut
    words = [tokenizer._inner.id_to_token(i) for i in flat]
    assert words == ["the", "good", "bad", "x", "##y", "[UNK]", "a"]
    assert tokenizer.encode([])[0].shape == (0,)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("tokenizer.json", None, "there is no tokenizer file"),
        ("tokenizer.json", b"{}", "is not a tokenizer file"),
        ("tokenizer.json", b"\xff", "is not a tokenizer file"),
        ("vocab.txt", b"one\ntwo\n", "is not a BERT vocabulary: it has no .UNK."),
        ("vocab.txt", b"\xff\xfe", "cannot be read"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes | None, told: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(EncoderError, match=told):
        Tokenizer.from_file(tmp_path / name)


def test_vocabulary_equals_tokenizer_json(shared: Path) -> None:
    folder = shared / "encoders" / "e5-small"
    if not (folder / "vocab.txt").is_file():
        pytest.skip("no e5-small at hand")
    ours, theirs = (Tokenizer.from_file(folder / n) for n in ("vocab.txt", "tokenizer.json"))
    texts = ["Café naïve?! [MASK] 漢字 isn't", "unaffable 3.5%"]
    assert ours.encode(texts)[0].tolist() == theirs.encode(texts)[0].tolist()
    assert ours.layout == theirs.layout
