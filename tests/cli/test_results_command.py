"""`plait results` as its users meet it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def records(tmp_path: Path) -> Path:
    """A folder with one record: a real one, of a recipe of the reports."""
    source = ROOT / "results" / "course" / "e5-small-lr5e-5-3-epochs.json"
    record = json.loads(source.read_text(encoding="utf-8"))
    record |= {"recipe": "a/square-root", "profile": "small", "seed": 1}
    path = tmp_path / "records" / "small" / "a" / "square-root" / "seed-1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record), encoding="utf-8")
    return tmp_path / "records"


def test_a_page_and_pictures(plait, records, tmp_path):
    pytest.importorskip("matplotlib")
    out, pictures = tmp_path / "docs" / "results.md", tmp_path / "docs" / "pictures"
    done = plait("results", "--records", records, "--out", out, "--pictures", pictures)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "1 records. Findings: 0 hold, 0 do not, 0 within the noise, 46 not tested.",
        f"The page is in {out}.",
    ]
    page = out.read_text(encoding="utf-8")
    assert "| `a/square-root` | here | .521 | .874 | .886 | .761 | .779 | 1 |" in page
    assert "](pictures/a-table-2.svg)" in page
    assert (pictures / "a-table-2.svg").is_file()


def test_a_page_alone(plait, records, tmp_path):
    done = plait("results", "--records", records, "--out", tmp_path / "r.md", "--no-pictures")
    assert done.code == 0, done.err
    assert "![" not in (tmp_path / "r.md").read_text(encoding="utf-8")


def test_wrong_words_are_told_in_a_sentence(plait, records, tmp_path):
    done = plait("results", "--records", tmp_path / "none")
    assert done.code == 2
    assert done.complaint().startswith(f"there is no folder {tmp_path / 'none'}")
    done = plait("results", "--records", records, "--profile", "smal")
    assert done.complaint() == "there is no profile 'smal'; did you mean 'small'?"
    done = plait("results", "--records", records, "--profile", "packaged")
    assert "has no records of profile 'packaged'" in done.complaint()


def test_a_broken_record_is_named_and_nothing_written(plait, records, tmp_path):
    path = records / "small" / "a" / "square-root" / "seed-1.json"
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    done = plait("results", "--records", records, "--out", tmp_path / "r.md", "--no-pictures")
    assert done.code == 2
    assert done.complaint().startswith(f"{path}, line ")
    assert not (tmp_path / "r.md").exists()
