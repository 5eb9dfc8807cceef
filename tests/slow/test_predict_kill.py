"""A prediction that is killed or interrupted goes on, and ends as if nothing had happened."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL here"),
]

WORDS = ["great", "dull", "the", "film", "was", "very", "not"]


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.csv"
    lines = [" ".join(WORDS[(i * k) % 7] for k in range(1, 3 + i % 20)) for i in range(40_000)]
    path.write_text("text\n" + "\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_what_was_killed_goes_on_to_the_same_bytes(tiny_run, texts, tmp_path, number, ending):
    def command(out, *more):
        words = ["predict", tiny_run, "--task", "mood", "--input", texts, "--out", out, *more]
        return [sys.executable, "-m", "plait", *map(str, words)]

    whole, out = tmp_path / f"whole.{ending}", tmp_path / f"out.{ending}"
    subprocess.run(command(whole), check=True)
    journal = tmp_path / f"out.{ending}.part.json"
    begun = subprocess.Popen(command(out), stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not (journal.exists() and json.loads(journal.read_text())["rows"]):
        assert time.monotonic() < end
        assert begun.poll() is None
        time.sleep(0.05)
    begun.send_signal(number)
    _, told = begun.communicate(timeout=60)
    if number == signal.SIGINT:
        assert begun.returncode == 130
        assert "rows are kept. Continue with: plait predict " in told
    assert not out.exists()
    subprocess.run(command(out, "--resume"), check=True)
    assert out.read_bytes() == whole.read_bytes()
    assert list(tmp_path.glob("*.part*")) == []
