"""The page on scale shows what the model reckons, and the Slurm script is a script."""

from __future__ import annotations

import subprocess
import sys

from doc_blocks import ROOT, read_blocks


def test_the_tables_are_what_the_model_prints():
    made = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "scale_model.py"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    page = (ROOT / "docs" / "how-to" / "cluster.md").read_text(encoding="utf-8")
    rows = [line for line in made.splitlines() if line.startswith("| ")]
    assert len(rows) == 16
    assert [row for row in rows if row not in page] == []


def test_bash_can_read_the_slurm_script():
    (script,) = read_blocks(ROOT / "docs" / "how-to" / "cluster.md", "bash")
    subprocess.run(["bash", "-n"], input=script.text, text=True, check=True)
