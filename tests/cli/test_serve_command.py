"""`plait serve`: what it refuses before anything is loaded. tests/web/test_server.py runs it."""

from __future__ import annotations

import builtins
import socket

import pytest

pytest.importorskip("uvicorn", reason="plait[serve] is not installed")


@pytest.fixture(autouse=True)
def _apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PLAIT_KEYS", raising=False)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "there is no runs/demo, which `plait demo` makes"),
        (["nowhere"], "there is no run at nowhere"),
        (["--runs", "nowhere"], "there is no folder nowhere"),
        (["--runs", "."], "holds no folders"),
        (["a", "--runs", "."], "not both"),
        (["a", "--plugins"], "--plugins is for the runs of --runs"),
        (["--host", "0.0.0.0"], "say --open as well"),
        (["--key-file", "none"], "there is no key file none"),
        (["--port", "70000"], "'--port'"),
        (["--workers", "0"], "'--workers'"),
        (["--queue", "10"], "a queue of 10 rows"),
    ],
)
def test_refusals(plait, words, sentence):
    done = plait("serve", *words)
    assert done.code == 2
    assert sentence in done.complaint()


def test_a_port_that_is_taken(plait, trained):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = plait("serve", trained, "--port", port)
    assert done.code == 2
    assert f"port {port} of 127.0.0.1 cannot be had" in done.complaint()


def test_an_address_of_nobody(plait, trained):
    done = plait("serve", trained, "--host", "no such host", "--open")
    assert "no address of this machine" in done.complaint()


def test_a_folder_that_is_no_run(plait, tmp_path):
    (tmp_path / "empty").mkdir()
    done = plait("serve", "empty", "--port", 0)
    assert done.code == 2
    assert "is not a run" in done.complaint()


def test_what_is_not_installed_is_named(plait, trained, monkeypatch):
    import sys

    real = builtins.__import__

    def without(name, *rest):
        if name == "uvicorn":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "plait.serve.server", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    done = plait("serve", trained)
    assert "needs uvicorn, which is not installed: pip install 'plait[serve]'" in done.complaint()
