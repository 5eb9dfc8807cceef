"""Help, the words typed wrong, and what each kind of trouble exits with."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
import typer

import plait.cli
from plait.errors import (
    FREE_ROOM,
    DeviceMemoryError,
    DiskFullError,
    Interrupted,
    RecipeError,
    ResourceError,
    UsageError,
)

COMMANDS = [
    "demo",
    "new",
    "check",
    "compare",
    "pairs",
    "train",
    "train-all",
    "vary",
    "plan",
    "search",
    "evaluate",
    "predict",
    "explain",
    "embed",
    "submit",
    "export",
    "serve",
    "card",
    "ensemble",
    "audit",
    "report",
    "calibrate",
    "average",
    "list",
    "mistakes",
    "doctor",
]


def test_these_are_all_the_commands():
    assert sorted(typer.main.get_command(plait.cli.app).commands) == sorted(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_text_has_an_example(plait, command):
    done = plait(command, "--help")
    assert done.code == 0
    assert done.err == ""
    assert f"Example: plait {command}" in done.out
    assert "Usage: plait" in done.out


@pytest.mark.parametrize("args", [[], ["--help"]])
def test_plait_alone_shows_every_command(plait, args):
    done = plait(*args)
    assert done.code == 0
    assert "Example: plait demo" in done.out
    for command in COMMANDS:
        assert f"\n  {command} " in done.out
    assert "..." not in done.out.partition("Commands:")[2]  # no sentence is cut short


def test_a_home_behind_an_equals_sign(plait, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    done = plait("predict", tmp_path, "a text", "--output=~/none/a.csv")
    assert f"there is no folder {tmp_path / 'none'} " in done.complaint()
    done = plait("check", "--", "--data=~/x")  # behind -- are no options
    assert "--data=~/x" in done.complaint()


def test_version(plait):
    done = plait("--version")
    assert (done.code, done.out) == (0, f"plait {plait_version()}\n")


def plait_version() -> str:
    from plait import __version__

    return __version__


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["trian"], "no such command 'trian'"),
        (["train"], "missing argument 'RECIPE'"),
        (["train", "course", "--nope"], "no such option"),
        (["train", "course", "--seed", "x"], "'--seed'"),
        (["evaluate", "run", "--split", "nope"], "'--split'"),
        (["predict", "run", "--format", "xml"], "'--format'"),
    ],
)
def test_words_typed_wrong_are_told_in_one_line(plait, args, told):
    done = plait(*args)
    assert done.code == 2
    complaint = done.complaint()
    assert told in complaint
    assert "--help`" in complaint


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (UsageError("this is wrong"), 2, "this is wrong"),
        (RecipeError("two\nlines"), 2, "two lines"),
        (DiskFullError("full"), 1, "full"),
        (
            OSError(errno.EROFS, "Read-only file system", "a/b"),
            2,
            "a/b cannot be written (read-only file system): choose another",
        ),
        (DeviceMemoryError("out of memory at batch size 8"), 1, "out of memory at batch size 8"),
        (Interrupted("saved"), 130, "saved"),
        (KeyboardInterrupt(), 130, "stopped"),
        (
            PermissionError(errno.EACCES, "Permission denied", "x.csv"),
            2,
            "x.csv: Permission denied; change its permissions, or name another place",
        ),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "x"), 2, "x: Is a directory; name a f"),
        (OSError(errno.ENOSPC, "No space left on device", "x"), 1, "x: No space left"),
        (MemoryError(), 1, "out of memory; other programs"),
        (RuntimeError("CUDA out of memory"), 1, "out of memory"),
    ],
)
def test_trouble_becomes_a_sentence_and_an_exit_code(plait, monkeypatch, error, code, told):
    def fail():
        raise error

    monkeypatch.setattr(sys.modules["plait.cli.doctor"], "_findings", fail)
    done = plait("doctor")
    assert done.code == code
    assert told in done.complaint()


@pytest.mark.parametrize(
    ("words", "again"),
    [
        (["doctor"], "again"),
        (["predict", "run", "a"], "again, with --resume"),
        (["predict", "run", "a", "--resume"], "again"),
    ],
)
def test_a_full_disk_names_resume_to_commands_that_have_it(plait, monkeypatch, words, again):
    def fail(*_, **__):
        raise ResourceError(f"some run: the disk is full. {FREE_ROOM}")  # as one of several has it

    monkeypatch.setattr(sys.modules["plait.cli.doctor"], "_findings", fail)
    monkeypatch.setattr(sys.modules["plait.cli.predict"], "make_engine", fail)
    done = plait(*words)
    assert done.code == 1
    assert done.complaint().endswith(f"Free some room, then give the same command {again}")


def test_what_is_behind_a_sentence_is_told_before_it(plait, monkeypatch):
    def fail():
        error = UsageError("the workers could not go on")
        error.add_note("Traceback of a worker\n  in its file")
        raise error

    monkeypatch.setattr(sys.modules["plait.cli.doctor"], "_findings", fail)
    done = plait("doctor")
    assert done.code == 2
    assert done.err.splitlines() == [
        "Traceback of a worker",
        "  in its file",
        "plait: the workers could not go on",
    ]


def test_a_bug_of_ours_keeps_its_traceback(monkeypatch):
    def fail():
        raise RuntimeError("nobody thought of this")

    monkeypatch.setattr(sys.modules["plait.cli.doctor"], "_findings", fail)
    with pytest.raises(RuntimeError, match="nobody"):
        plait.cli.main(["doctor"])


@pytest.mark.skipif(os.name != "posix", reason="pipes end otherwise elsewhere")
def test_a_reader_that_goes_away_is_no_traceback():
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "plait", "--help"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (1, b"")
