"""Keys and addresses."""

from __future__ import annotations

import pytest

from plait.errors import UsageError
from plait.serve.keys import Keys, is_loopback, refuse_open

ONE, TWO = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch):
    monkeypatch.delenv("PLAIT_KEYS", raising=False)


def test_keys_of_a_file_and_of_the_environment(tmp_path, monkeypatch):
    path = tmp_path / "keys"
    path.write_text(f"# ours\n{ONE}\n\n", encoding="utf-8")
    monkeypatch.setenv("PLAIT_KEYS", f" {TWO} ,")
    keys = Keys.read(path)
    assert keys
    assert all(map(keys.admit, (ONE, TWO)))
    assert not any(map(keys.admit, ("", ONE[:-1], ONE + "0", "# ours", None, "é")))


def test_without_keys_all_are_let_in():
    keys = Keys.read(None)
    assert not keys
    assert keys.admit(None)
    assert keys.admit("anything")


@pytest.mark.parametrize("text", ["", "# nothing\n", "short\n", "with ünicode of enough letters\n"])
def test_files_that_hold_no_keys(tmp_path, text):
    path = tmp_path / "keys"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="key"):
        Keys.read(path)


def test_a_key_is_never_told(tmp_path):
    path = tmp_path / "keys"
    path.write_text("secret", encoding="utf-8")
    with pytest.raises(UsageError) as error:
        Keys.read(path)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.9.9.9"])
def test_this_machine(host):
    assert is_loopback(host)
    refuse_open(host, Keys([]), is_open=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.1", "example.org", ""])
def test_wider_needs_a_key_or_a_second_word(host):
    assert not is_loopback(host)
    with pytest.raises(UsageError, match="--open"):
        refuse_open(host, Keys([]), is_open=False)
    refuse_open(host, Keys([]), is_open=True)
    refuse_open(host, Keys([ONE]), is_open=False)
