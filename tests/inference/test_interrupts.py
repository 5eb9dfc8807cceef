"""Signals that come together are one press of Ctrl-C."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from plait.inference import interrupts
from plait.inference.interrupts import count_once, presses_counted


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    now = [100.0]
    monkeypatch.setattr(interrupts.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def _default():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_what_comes_together_counts_once(clock):
    heard = []
    hear = count_once(lambda number, _: heard.append((number, clock[0])))
    for clock[0] in (100.0, 100.1, 100.4, 100.5, 100.9, 101.0, 107.0):
        hear(2, None)
    assert heard == [(2, 100.0), (2, 100.5), (2, 101.0), (2, 107.0)]


@pytest.mark.usefixtures("_default")
def test_a_press_interrupts_once(clock):
    with presses_counted():
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        clock[0] += 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("_default")
def test_other_threads_leave_it_alone():
    seen = []

    def look():
        with presses_counted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
