"""`plait report`: a page about a run, where it is asked for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest


@pytest.fixture
def run(trained, tmp_path):
    return shutil.copytree(trained, tmp_path / "run")


def test_a_page_in_the_run(plait, run):
    done = plait("report", run)
    assert done.code == 0, done.err
    page = run / "report.html"
    assert done.out == f"The report is in {page}.\n"
    first = (run / "report.html").read_bytes()
    assert plait("report", run).code == 0  # its own page may be written over
    assert (run / "report.html").read_bytes() == first


def test_a_folder_that_cannot_be_written_is_refused_before_anything_slow(plait, run, monkeypatch):
    monkeypatch.setattr("os.access", lambda _, mode: mode != os.W_OK)
    (run / "model.safetensors").unlink()  # which nobody has asked for yet
    done = plait("report", run)
    assert done.code == 2
    assert "cannot be written; name another file for the report with --out" in done.complaint()


def test_several_runs(plait, run, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = plait("report", run, trained)
    assert done.code == 0, done.err
    assert done.out == "The report is in report.html.\n"
    assert (tmp_path / "report.html").is_file()


def test_mistakes_are_told_in_one_line(plait, run, tmp_path):
    assert "there is no run at" in plait("report", tmp_path / "x").complaint()
    assert "missing argument 'RUN'" in plait("report").complaint()
    assert "no such option" in plait("report", run, "--no").complaint()
    assert "is a folder" in plait("report", run, "--out", tmp_path).complaint()
    assert "is not a run" in plait("report", tmp_path).complaint()
    assert "mood-dev.csv" in plait("report", run, "--data", tmp_path).complaint()
    assert "there is no folder" in plait("report", run, "--alone", tmp_path / "x").complaint()


def test_without_matplotlib(run):
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        f"from plait.cli import main; main(['report', {str(run)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "plait: figures need matplotlib, which is not installed: pip install 'plait[report]'\n"
    )
