"""The generated pages are fresh, and nothing registered is missing from them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from doc_blocks import ROOT

import plait
from plait import errors

REFERENCE = ROOT / "docs" / "reference"
NAMES = ["cli.md", "errors.md", "parts.md", "python.md", "recipe.md"]
STALE = "is stale: run `make docs` and commit the result"


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages made anew, by a process no test has registered anything in.

    Its terminal is narrow and coloured, which must not show.
    """
    folder = tmp_path_factory.mktemp("reference")
    script = ROOT / "scripts" / "make_reference.py"
    odd = {"COLUMNS": "37", "FORCE_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    subprocess.run(
        [sys.executable, script, folder], env=os.environ | odd, check=True, capture_output=True
    )
    return folder


def test_every_page_is_there(fresh):
    assert sorted(path.name for path in fresh.iterdir()) == NAMES
    assert sorted(path.name for path in REFERENCE.iterdir()) == NAMES


def test_pages_are_fresh(fresh):
    names = set(NAMES)
    if version("typer") != _pinned("typer"):  # another typer lays its help out otherwise
        names.remove("cli.md")
    pages = {
        name: [(at / name).read_text(encoding="utf-8") for at in (fresh, REFERENCE)]
        for name in names
    }
    stale = [name for name, (made, kept) in pages.items() if made != kept]
    assert stale == [], f"docs/reference/{stale} {STALE}"


def _pinned(package: str) -> str:
    lines = (ROOT / "requirements" / "runtime.txt").read_text(encoding="utf-8")
    found = re.search(rf"^{package}==(\S+)$", lines, flags=re.M)
    assert found
    return found[1]


# --- nothing is missing ------------------------------------------------------------------


def registered() -> list[str]:
    """Find the names parts are registered under by reading the sources."""
    found = []
    for path in sorted((ROOT / "src" / "plait").rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        for registry, name in re.findall(r'^@([A-Z]+)\.register\("([^"]+)"\)', code, flags=re.M):
            family = registry.lower().removesuffix("es" if registry.endswith("SSES") else "s")
            found.append(f"{family} {name}")
    return found


def test_every_part_is_documented():
    parts = registered()
    assert {"schedule fixed", "loss bce", "head cosine", "aggregator pcgrad"} <= set(parts)
    text = (REFERENCE / "parts.md").read_text(encoding="utf-8")
    assert [part for part in parts if f"\n### {part}\n" not in text] == [], f"parts.md {STALE}"


def test_every_public_name_is_documented():
    text = (REFERENCE / "python.md").read_text(encoding="utf-8")
    names = set(plait.__all__) - {"__version__"}
    assert [name for name in sorted(names) if f"\n## plait.{name}\n" not in text] == []


def test_every_error_is_documented():
    text = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    classes = [e for e in vars(errors).values() if isinstance(e, type)]
    missing = [e.__name__ for e in classes if f"| `{e.__name__}` |" not in text]
    assert missing == []
    assert len(classes) > 5


def test_no_key_of_a_recipe_is_without_a_meaning():
    text = (REFERENCE / "recipe.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) > 70
    assert [row for row in rows if row.endswith("|  |")] == []
