"""Files of vectors: every format, in order, whole after any interruption."""

from __future__ import annotations

import json
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from plait import load
from plait.errors import DataError, Interrupted, RunError
from plait.inference.answers import journal, vectors
from plait.inference.answers.journal import journal_place

WORDS = ["the", "film", "was", "great", "dull", "plain", "very", "not", "song", "meal", "."]
DRAW = random.Random(5)
ROWS = [
    {"key": f"k{i}", "text": " ".join(DRAW.choices(WORDS, k=DRAW.randint(1, 20))), "n": i}
    for i in range(23)
]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch):
    monkeypatch.setattr(vectors, "CHUNK", 5)
    monkeypatch.setattr(journal, "SAVE_SECONDS", 0.0)


@pytest.fixture(scope="module")
def model(tiny_run):
    return load(tiny_run, device="cpu")


@pytest.fixture(scope="module")
def expected(model):
    return model.embed([row["text"] for row in ROWS])


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def read(path):
    """Read vectors back, and the rows' own columns where the format has them."""
    if path.suffix == ".npy":
        return np.load(path), None
    if path.suffix == ".parquet":
        found = pa.parquet.read_table(path).to_pylist()
    else:
        found = [json.loads(line) for line in path.read_text().splitlines()]
    return np.array([row.pop("vector") for row in found], dtype=np.float32), found


@pytest.mark.parametrize("ending", ["npy", "parquet", "jsonl"])
def test_every_format_holds_what_embed_gives(model, expected, rows, tmp_path, ending):
    seen = []
    out = tmp_path / f"out.{ending}"
    done = model.embed_file(rows, out, progress=lambda *told: seen.append(told))
    found, own = read(out)
    assert (done.num_rows, done.width, done.num_empty) == (23, expected.shape[1], 0)
    assert np.allclose(found, expected, atol=1e-6)  # rows of other lengths are beside them
    assert found.dtype == np.float32
    if own is not None:
        assert [{k: row[k] for k in ("key", "text", "n")} for row in own] == ROWS
    assert seen[-1] == ("embedding", 23, 23)
    assert len(seen) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == [out.name, "rows.jsonl"]


@pytest.mark.parametrize("ending", ["npy", "parquet", "jsonl"])
def test_what_was_stopped_goes_on_to_the_same_bytes(model, rows, tmp_path, ending):
    whole, out = tmp_path / f"whole.{ending}", tmp_path / f"out.{ending}"
    model.embed_file(rows, whole)

    def stop(_, done, __):
        if done >= 10:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="10 of 23 rows are kept"):
        model.embed_file(rows, out, progress=stop)
    assert not out.exists()
    with pytest.raises(RunError, match="continue with --resume"):
        model.embed_file(rows, out)
    with pytest.raises(RunError, match="normalize: false, now true"):
        model.embed_file(rows, out, normalize=True, resume=True)
    model.embed_file(rows, out, resume=True)
    assert out.read_bytes() == whole.read_bytes()
    assert not journal_place(out).exists()


def test_rows_without_a_text(model, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("text\na film\n \na song\n")
    with pytest.raises(DataError, match="line 3"):
        model.embed_file(path, tmp_path / "out.npy")
    for ending in ("npy", "parquet", "jsonl"):
        done = model.embed_file(path, tmp_path / f"out.{ending}", skip_empty=True)
        assert (done.num_rows, done.num_empty) == (3, 1)
    assert np.isnan(np.load(tmp_path / "out.npy")).all(axis=1).tolist() == [False, True, False]
    kept = pa.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["vector"] is None for row in kept] == [False, True, False]
    kept = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["vector"] is None for row in kept] == [False, True, False]
