"""Reading files with pyarrow's threads must not end a finished program with an abort."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path
from plait.data import RecordFile
print(RecordFile(Path(sys.argv[1]), ["sentence"]).survey().num_rows)
"""


@pytest.mark.slow
def test_a_program_that_read_a_file_ends_quietly():
    # Before the reader waited for pyarrow's threads, about one run in three was aborted.
    sample = Path(__file__).parents[2] / "src/plait/data/sample/sentiment-dev.csv"
    for _ in range(15):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, str(sample)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "100\n", "")
