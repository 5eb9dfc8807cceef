"""A picture a table: valid SVG, the same bytes each time, with every row in it."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from fake_records import make_record, write_all, write_record

from plait.errors import UsageError
from plait.results import write_results


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("records")
    write_all(folder)
    return folder


@pytest.fixture(scope="module")
def drawn(records: Path) -> Path:
    """The folder of the page and its pictures."""
    folder = records.parent / "docs"
    write_results(records, out=folder / "page.md", pictures=folder / "pictures" / "results")
    return folder


def texts(path: Path) -> list[str]:
    """Read every text of a picture."""
    words = ElementTree.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")
    return ["".join(word.itertext()).strip() for word in words]


def test_the_page_shows_every_picture(drawn):
    names = sorted(path.stem for path in (drawn / "pictures" / "results").iterdir())
    assert {"findings", "a-table-1", "b", "c", "d-grid", "d-steps"} <= set(names)
    page = (drawn / "page.md").read_text(encoding="utf-8")
    assert page.count("](pictures/results/") == len(names)
    for name in names:
        assert f"](pictures/results/{name}.svg)" in page


def test_a_picture_has_every_row_and_figure(drawn):
    found = texts(drawn / "pictures" / "results" / "a-table-2.svg")
    for word in ("Proportional", "Annealed", "Square root", "sst", "quora", "sts", "overall"):
        assert word in found


def test_the_findings_are_all_there(drawn):
    found = texts(drawn / "pictures" / "results" / "findings.svg")
    assert "Square-root sampling beats proportional (mean)" in found
    assert {"A", "B", "C", "D"} <= set(found)


def test_the_same_records_give_the_same_bytes(drawn, records, tmp_path):
    write_results(records, out=tmp_path / "page.md", pictures=tmp_path / "pictures" / "results")
    for path in sorted((drawn / "pictures" / "results").iterdir()):
        again = tmp_path / "pictures" / "results" / path.name
        assert again.read_bytes() == path.read_bytes(), path.name
        assert b"<dc:date>" not in path.read_bytes()


def test_one_record_is_enough(tmp_path):
    pytest.importorskip("matplotlib")
    figures = {"sst": 0.5, "quora": 0.8, "sts": None}
    write_record(tmp_path / "records", make_record("c/smart", figures))
    made = write_results(tmp_path / "records", out=tmp_path / "page.md", pictures=tmp_path / "p")
    assert made.pictures == ["c"]
    assert "SMART" in texts(tmp_path / "p" / "c.svg")


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    figures = {"sst": 0.5, "quora": 0.8, "sts": 0.6}
    write_record(tmp_path / "records", make_record("c/smart", figures))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "plait.results.plots", raising=False)
    with pytest.raises(UsageError, match=r"plait\[report\].*--no-pictures"):
        write_results(tmp_path / "records", out=tmp_path / "page.md", pictures=tmp_path / "p")
