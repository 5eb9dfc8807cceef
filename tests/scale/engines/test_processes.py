"""Jobs as processes of this machine: what they say, and what is said of those that cannot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import wait
from pathlib import Path

import pytest
import torch

from plait.scale.processes import ProcessPool, _share_threads, _undisturbed


def add(tell, numbers):
    """Ask for a number and add it."""
    return ("done", sum(numbers) + tell(("more", len(numbers))))


def vanish(tell, code):
    os._exit(code)


def divide(tell, number):
    return ("done", 1 / number)


class Interrupting:
    """The number 7; a Ctrl-C comes as it is sent to a process."""

    def __reduce__(self):
        signal.raise_signal(signal.SIGINT)
        return (int, ("7",))


def say_pid(tell, _):
    tell((os.getpid(),))
    return ("done",)


@pytest.fixture
def notes():
    return []


@pytest.fixture
def _ctrl_c():
    """Let SIGINT do what it does: a shell's background jobs ignore it, with all they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def pool(notes):
    pool = ProcessPool(2, notes.append)
    yield pool
    pool.close()


def hear_last(pool):
    """Answer everything with 10 until a job is over."""
    while True:
        for name, message, is_last in pool.hear():
            if is_last:
                return name, message
            pool.answer(name, 10)


def test_jobs_are_answered_and_say_what_came_of_them(pool):
    pool.start("one", add, [1, 2])
    pool.start("two", add, [5])
    assert dict([hear_last(pool), hear_last(pool)]) == {"one": ("done", 13), "two": ("done", 15)}
    assert pool.names() == []


def test_a_process_that_is_gone_is_told_with_its_exit_code(pool):
    pool.start("gone", vanish, 7)
    name, message = hear_last(pool)
    assert (name, message[0]) == ("gone", "lost")
    assert "exit code 7" in message[1]


@pytest.mark.usefixtures("_ctrl_c")
def test_a_process_that_a_ctrl_c_saw_start_is_heard_to_end(pool):
    with pytest.raises(KeyboardInterrupt) as caught:
        pool.start("gone", vanish, Interrupting())
    assert wait([pool._active["gone"][0]], 20), "its end is not heard"
    assert "exit code 7" in hear_last(pool)[1][1]
    assert caught.value.__traceback__ is not None  # where what was open then would still be


def test_what_nobody_foresaw_is_told_with_its_traceback(pool, notes):
    pool.start("bad", divide, 0)
    assert hear_last(pool) == ("bad", ("failed", "ZeroDivisionError: division by zero"))
    (note,) = notes
    assert note.startswith("unexpected error in bad:\nTraceback (most recent")
    assert "in divide" in note


@pytest.mark.parametrize(("given", "left"), [(None, 4), ("8", 8)])
def test_threads_are_shared_out_unless_the_user_says_how_many(monkeypatch, given, left):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    try:
        _share_threads(2)
        assert torch.get_num_threads() == left
    finally:
        torch.set_num_threads(before)


@pytest.mark.usefixtures("_ctrl_c")
def test_a_ctrl_c_waits_until_a_process_is_known():
    """Else nobody would stop it, or wait for it."""
    happened = []
    with pytest.raises(KeyboardInterrupt):
        interrupt_before(lambda: happened.append("started"))
    assert happened == ["started"]


def interrupt_before(act):
    with _undisturbed():
        signal.raise_signal(signal.SIGINT)
        act()


PARENT = """
import sys
from test_processes import say_pid
from plait.scale.processes import ProcessPool

if __name__ == "__main__":
    pool = ProcessPool(1, print)
    pool.start("child", say_pid, None)
    ((_, message, _),) = pool.hear()
    print(message[0], flush=True)
    pool.hear()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there is no SIGKILL here")
def test_a_job_ends_with_the_process_that_sent_it(tmp_path):
    (tmp_path / "parent.py").write_text(PARENT)
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
    )
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    end = time.monotonic() + 10
    while is_alive(child):
        assert time.monotonic() < end, "the child outlived its parent"
        time.sleep(0.05)


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
