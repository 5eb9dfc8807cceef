"""The page of speeds is what the records say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from doc_blocks import ROOT

RECORDS = sorted((ROOT / "benchmarks" / "records").glob("*.json"))


def test_the_page_is_fresh(tmp_path):
    made = tmp_path / "speed.md"
    subprocess.run([sys.executable, ROOT / "scripts" / "make_speed.py", made], check=True)
    kept = (ROOT / "docs" / "speed.md").read_text(encoding="utf-8")
    assert kept == made.read_text(encoding="utf-8"), (
        "docs/speed.md is stale: run `make docs` and commit the result"
    )


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_is_whole(path: Path):
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["benchmark"] == path.stem
    assert {"hardware", "versions", "settings", "ratios", "goals"} <= record.keys()
    best = record["peers"][record["best_peer"]]["median"]
    assert best == max(side["median"] for side in record["peers"].values())
    for name, side in record["plait"].items():
        assert side["low"] <= side["median"] <= side["high"]
        assert record["ratios"][name] == pytest.approx(side["median"] / best, abs=0.006)
