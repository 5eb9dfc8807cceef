"""The page of results and its pictures are what the records say."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

import pytest
from doc_blocks import ROOT

from plait.results import write_results

PICTURES = ROOT / "docs" / "pictures" / "results"
STALE = "is stale: run `make docs` and commit the result"


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory):
    """The page and its pictures made anew, as scripts/make_results.py does."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("docs")
    write_results(
        ROOT / "results" / "reproduce",
        out=folder / "results.md",
        pictures=folder / "pictures" / "results",
        best=ROOT / "results" / "best",
    )
    return folder


def test_the_page_is_fresh(fresh):
    kept, made = (
        (folder / "results.md").read_text(encoding="utf-8") for folder in (ROOT / "docs", fresh)
    )
    assert kept == made, f"docs/results.md {STALE}"


def test_there_are_the_pictures_of_the_page_and_no_others(fresh):
    made, kept = (
        sorted(path.name for path in folder.glob("*"))
        for folder in (fresh / "pictures" / "results", PICTURES)
    )
    assert kept == made, f"docs/pictures/results {STALE}"


def test_the_pictures_are_fresh(fresh):
    if _installed() != _pinned():
        pytest.skip("another matplotlib than the pinned one draws otherwise")
    for path in sorted((fresh / "pictures" / "results").glob("*.svg")):
        assert (PICTURES / path.name).read_bytes() == path.read_bytes(), f"{path.name} {STALE}"


def _installed() -> str:
    try:
        return version("matplotlib")
    except PackageNotFoundError:
        return ""


def _pinned() -> str:
    lines = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    found = re.search(r"^matplotlib==(\S+)$", lines, flags=re.M)
    return found[1] if found else ""
