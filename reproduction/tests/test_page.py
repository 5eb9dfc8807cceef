"""results.md and its pictures are fresh, and the command line writes them."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from reproduction.__main__ import main
from reproduction.formatting import number, over_seeds, signed
from reproduction.page import HERE, gather, make_page, write_results
from reproduction.records import RECORDS

STALE = "is stale: run `make docs` and commit the result"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write_results("small", RECORDS, folder)
    return folder


def test_the_page_is_fresh(fresh):
    kept, made = ((f / "results.md").read_text(encoding="utf-8") for f in (HERE, fresh))
    assert kept == made, f"reproduction/results.md {STALE}"


def test_the_pictures_are_fresh(fresh):
    kept, made = (sorted((f / "pictures").iterdir()) for f in (HERE, fresh))
    assert [path.name for path in kept] == [path.name for path in made]
    pinned = (HERE.parent / "requirements" / "dev.txt").read_text(encoding="utf-8")
    if f"matplotlib=={version('matplotlib')}\n" not in pinned:
        pytest.skip("another version of matplotlib draws other files")
    for old, new in zip(kept, made, strict=True):
        assert old.read_bytes() == new.read_bytes(), f"{old.name} {STALE}"


def test_a_page_without_records(tmp_path):
    (tmp_path / "small").mkdir()
    page = make_page(gather("small", tmp_path))
    assert "not run yet: `a/round-robin-truncated`, `a/baseline`" in page
    assert "0 of 66 are run" in page


def test_the_command_names_what_is_wrong(tmp_path, capsys):
    path = tmp_path / "small" / "a" / "pcgrad" / "seed-1.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"recipe": "a/pcgrad"}')
    assert main(["page", "--records", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "seed-1.json is not a valid record" in capsys.readouterr().err
    source = RECORDS / "small" / "b" / "baseline"
    path.write_bytes(next(source.glob("*.json")).read_bytes())
    assert main(["page", "--records", str(tmp_path), "--out", str(tmp_path)]) == 2
    assert "do not match its place" in capsys.readouterr().err


def test_numbers():
    shown = [number(v) for v in (0.5, -0.0071, 1.535, -0.0001, None, float("nan"))]
    assert shown == [".500", "-.007", "1.535", ".000", "none", "none"]
    assert (signed(0.01), signed(-0.01)) == ("+.010", "-.010")
    assert over_seeds([0.5, 0.6]) == ".550\u00a0±\u00a0.071"


def test_every_table_cell_is_complete(fresh):
    text = (fresh / "results.md").read_text(encoding="utf-8")
    for block in re.findall(r"(?:^\|.*\|\n)+", text, flags=re.M):
        assert len({line.count(" | ") for line in block.splitlines() if "---" not in line}) == 1
