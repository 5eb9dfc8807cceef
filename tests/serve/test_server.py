"""Loading runs, and the whole server with two workers."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import httpx
import pytest

from plait.errors import RecipeError, RunError, UsageError
from plait.inference.ensemble import make_ensemble
from plait.serve.middleware import KeyCheck, read_keys
from plait.serve.server import Settings, is_loopback, list_runs, load_models, name_runs


def test_runs_are_named_after_their_folders(runs, tmp_path):
    assert name_runs([runs / "tiny", runs / "tiny"]) == {"tiny": (runs / "tiny").resolve()}
    shutil.copytree(runs / "tiny", tmp_path / "tiny")
    with pytest.raises(RunError, match="have the same name"):
        name_runs([runs / "tiny", tmp_path / "tiny"])
    with pytest.raises(RunError, match="there is no run at"):
        name_runs([tmp_path / "nowhere"])


def test_only_folders_directly_below_are_listed(runs, tmp_path):
    (tmp_path / "link").symlink_to(runs / "tiny")
    (tmp_path / "file").write_text("")
    (tmp_path / ".hidden").mkdir()
    with pytest.raises(UsageError, match="has no folders"):
        list_runs(tmp_path)
    assert list(list_runs(runs)) == ["again", "both", "empty", "labels", "tiny"]


def test_folders_that_cannot_be_loaded_are_left_out(models, runs, log):
    assert list(models) == ["tiny", "again", "both", "labels"]  # without `empty`
    empty = {"empty": runs / "empty"}
    with pytest.raises(RunError, match="no run could be loaded"):
        load_models(Settings(runs=empty, folder=runs))
    assert log()[0]["event"] == "run_left_out"
    with pytest.raises(RunError, match="is not a run"):
        load_models(Settings(runs=empty))


def test_a_folder_of_runs_leads_nowhere_else(runs, tmp_path, log):
    """Others may write to it: no links and no ensembles of runs elsewhere."""
    make_ensemble([runs / "tiny", runs / "again"], tmp_path / "both", "mean")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "model.safetensors").symlink_to(runs / "tiny" / "model.safetensors")
    with pytest.raises(RunError, match="no run could be loaded"):
        load_models(Settings(runs=list_runs(tmp_path), folder=tmp_path))
    assert all(f"is outside {tmp_path}" in line["reason"] for line in log())
    assert [line["run"] for line in log()] == ["both", "linked"]


def test_plugins_run_only_if_they_are_given(runs, tmp_path):
    folder, plugin = tmp_path / "theirs", tmp_path / "plugin.py"
    shutil.copytree(runs / "tiny", folder)
    plugin.write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    recipe = folder / "recipe.toml"
    text = recipe.read_text(encoding="utf-8")
    recipe.write_text(text.replace("plugins = []", f"plugins = [{str(plugin)!r}]"))
    settings = {"runs": {"theirs": folder}, "device": "cpu", "precision": "fp32"}
    with pytest.raises(RecipeError, match=r"is code; allow it with --plugins .*plugin\.py"):
        load_models(Settings(**settings, plugins=(tmp_path / "other.py",)))
    assert not (tmp_path / "ran").exists()
    assert list(load_models(Settings(**settings, plugins=(plugin,)))) == ["theirs"]
    assert (tmp_path / "ran").exists()


def test_key_files(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text("# of the office\n0123456789abcdef\n\n  another-key-of-somebody \n")
    assert read_keys(path) == ("0123456789abcdef", "another-key-of-somebody")
    assert KeyCheck(read_keys(path))
    for text, words in (("", "holds no API key"), ("short", "key 1"), ("é" * 20, "key 1")):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=words):
            read_keys(path)


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost", True), ("127.0.0.9", True), ("::1", True), ("0.0.0.0", False), ("a.b", False)],
)
def test_loopback(host, expected):
    assert is_loopback(host) is expected


def test_workers_answer_are_replaced_and_stop(tiny_run, tmp_path):
    """Two processes: one is killed, its successor answers, Ctrl-C ends all with code 130."""
    keys = tmp_path / "keys.txt"
    keys.write_text("0123456789abcdef")
    command = [sys.executable, "-m", "plait", "serve", str(tiny_run), "--port", "0"]
    command += ["--workers", "2", "--device", "cpu", "--key-file", str(keys)]
    out, err = tmp_path / "out.txt", tmp_path / "err.txt"
    with out.open("w") as stdout, err.open("w") as stderr:
        server = subprocess.Popen(
            command,
            stdout=stdout,
            stderr=stderr,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,  # so that the signal below goes to the whole group
        )
    try:
        (address,) = wait_for(r"Serving on (http://[\d.:]+) ", err, server)[:1]
        headers = {"Authorization": "Bearer 0123456789abcdef"}
        body = {"inputs": "the film was great .", "tasks": "mood"}
        first, _ = wait_for(r'"event": "started", "pid": (\d+)', out, server, count=2)
        os.kill(int(first), signal.SIGKILL)
        wait_for(r'"event": "started", "pid": (\d+)', out, server, count=3)
        for _ in range(4):  # each on its own connection
            assert httpx.post(f"{address}/v1/predict", json=body).status_code == 401
            done = httpx.post(f"{address}/v1/predict", json=body, headers=headers, timeout=60)
            assert done.json()["answers"][0]["mood"]["label"] in ("bad", "so-so", "good")
        figures = httpx.get(f"{address}/metrics", headers=headers).text.splitlines()
        assert 'plait_requests_total{path="/v1/predict",status="200"} 4.0' in figures  # of both
        os.killpg(server.pid, signal.SIGINT)
        assert server.wait(60) == 130
        assert "Traceback" not in out.read_text() + err.read_text()
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGKILL)


def wait_for(pattern, path, server, count=1):
    """Wait until a file has so many matches; return them."""
    until = time.monotonic() + 120
    while time.monotonic() < until and server.poll() is None:
        found = re.findall(pattern, path.read_text())
        if len(found) >= count:
            return found
        time.sleep(0.1)
    raise AssertionError(path.read_text())
