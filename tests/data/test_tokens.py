"""The tokenizer's ids, its layout of special tokens, and what goes wrong with its files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models

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


def test_layout_without_special_tokens() -> None:
    inner = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1, "u": 2}, unk_token="u"))
    tokenizer = Tokenizer(inner)
    assert tokenizer.layout == Layout(((), ()), ((), (), ()), 1, 0)
    assert tokenizer.mask_id is None


def test_truncation_and_padding_are_off(tmp_path: Path, roberta: tokenizers.Tokenizer) -> None:
    roberta.save(str(tmp_path / "tokenizer.json"))
    flat, lengths = Tokenizer.from_file(tmp_path / "tokenizer.json").encode(["a b c a b c", "a"])
    assert flat.tolist() == [4, 5, 6, 4, 5, 6, 4]
    assert lengths.tolist() == [6, 1]


def test_encode(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plait.data.words.BATCH", 2)
    texts = ["The GOOD film", "bad", "xyz!", "", "☃ a"]
    flat, lengths = tokenizer.encode(texts, limit=2)
    assert flat.dtype == lengths.dtype == np.int32
    assert lengths.tolist() == [3, 1, 4, 0, 2]  # before the cut
    words = [tokenizer._inner.id_to_token(i) for i in flat]
    assert words == ["the", "good", "bad", "x", "##y", "[UNK]", "a"]
    assert tokenizer.encode([])[0].shape == (0,)


def test_casing_stands_beside_the_vocabulary(tmp_path: Path, vocabulary: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(vocabulary.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}', encoding="utf-8")
    cased, lower = Tokenizer.from_file(path), Tokenizer.from_file(vocabulary)
    assert cased.encode(["Good"])[0].tolist() == [1]
    assert lower.encode(["Good"])[0].tolist() != [1]
    assert cased.fingerprint != lower.fingerprint


def test_special_token_names_stand_beside(tmp_path: Path, roberta: tokenizers.Tokenizer) -> None:
    roberta.save(str(tmp_path / "tokenizer.json"))
    names = {"mask_token": {"content": "c"}, "pad_token": "b"}
    (tmp_path / "special_tokens_map.json").write_text(json.dumps(names), encoding="utf-8")
    tokenizer = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert (tokenizer.mask_id, tokenizer.pad_id) == (6, 5)


def test_save_and_read_again(tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert again.fingerprint == tokenizer.fingerprint
    assert again.layout == tokenizer.layout
    assert len(again) == len(tokenizer)


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


def test_bad_settings_beside(tmp_path: Path, vocabulary: Path) -> None:
    (tmp_path / "vocab.txt").write_bytes(vocabulary.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text("{", encoding="utf-8")
    with pytest.raises(EncoderError, match=r"tokenizer_config.json cannot be read"):
        Tokenizer.from_file(tmp_path / "vocab.txt")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_fork_is_quiet_and_safe(vocabulary: Path) -> None:
    code = (
        "import os, sys\n"
        "from plait.data import Tokenizer\n"
        f"tokenizer = Tokenizer.from_file({str(vocabulary)!r})\n"
        "tokenizer.encode(['good film'] * 500)\n"
        "child = os.fork()\n"
        "assert tokenizer.encode(['good film'] * 500)[1].sum() == 1000\n"
        "if child: assert os.waitpid(child, 0)[1] == 0\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_vocabulary_equals_tokenizer_json(shared: Path) -> None:
    folder = shared / "encoders" / "e5-small"
    if not (folder / "vocab.txt").is_file():
        pytest.skip("no e5-small at hand")
    ours, theirs = (Tokenizer.from_file(folder / n) for n in ("vocab.txt", "tokenizer.json"))
    texts = ["Café naïve?! [MASK] 漢字 isn't", "unaffable 3.5%"]
    assert ours.encode(texts)[0].tolist() == theirs.encode(texts)[0].tolist()
    assert ours.layout == theirs.layout
