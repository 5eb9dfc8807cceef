"""`plait serve`: what it refuses before anything is loaded. tests/serve runs it."""

from __future__ import annotations

import builtins
import socket
import sys

import pytest

pytest.importorskip("uvicorn", reason="plait[serve] is not installed")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "there is no runs/demo, which `plait demo` makes"),
        (["nowhere"], "there is no run at nowhere"),
        (["--runs", "nowhere"], "there is no folder nowhere"),
        (["--runs", "."], "has no folders"),
        (["a", "--runs", "."], "not both"),
        (["run", "--host", "0.0.0.0"], "needs API keys: set --key-file"),
        (
            ["run", "--host", "no such host", "--key-file", "keys"],
            "of no such host",
        ),
        (["run", "--key-file", "none"], "none: No such file"),
        (["run", "--port", "70000"], "'--port'"),
        (["run", "--workers", "0"], "'--workers'"),
        (["run", "--port", "0"], "is not a run"),
    ],
)
def test_refusals(plait, tmp_path, monkeypatch, words, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys").write_text("0123456789abcdef")
    if "run" in words:
        (tmp_path / "run").mkdir()
    done = plait("serve", *words)
    assert done.code == 2
    assert sentence in done.err


def test_a_port_that_is_taken(plait, trained):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        done = plait("serve", trained, "--port", port)
    assert done.code == 2
    assert f"cannot listen on port {port} of 127.0.0.1" in done.err


def test_a_missing_package_is_named(plait, trained, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "uvicorn":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return real(name, *rest)

    monkeypatch.delitem(sys.modules, "plait.serve.server", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    done = plait("serve", trained)
    assert "needs uvicorn, which is not installed: pip install 'plait[serve]'" in done.complaint()
