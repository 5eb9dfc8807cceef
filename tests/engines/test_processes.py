"""Jobs as processes of this machine: what they say, and what is said of those that cannot."""

from __future__ import annotations

import os
import signal
import time

import pytest

from plait.engines.processes import ProcessCrew


def add(tell, numbers):
    """Ask for a number and add it."""
    return ("done", sum(numbers) + tell(("more", len(numbers))))


def vanish(tell, code):
    os._exit(code)


def wait_for_end(tell, _):
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    tell(("ready",))
    while not stopped:
        time.sleep(0.01)
    return ("stopped", "in good order")


@pytest.fixture
def crew():
    crew = ProcessCrew(2)
    yield crew
    crew.close()


def hear_last(crew):
    """Answer everything with 10 until a job is over."""
    while True:
        for name, message, is_last in crew.hear():
            if is_last:
                return name, message
            crew.answer(name, 10)


def test_jobs_are_answered_and_say_what_came_of_them(crew):
    crew.start("one", add, [1, 2])
    crew.start("two", add, [5])
    assert dict([hear_last(crew), hear_last(crew)]) == {"one": ("done", 13), "two": ("done", 15)}
    assert crew.names() == []


def test_a_process_that_is_gone_is_told_with_its_exit_code(crew):
    crew.start("gone", vanish, 7)
    name, message = hear_last(crew)
    assert (name, message[0]) == ("gone", "lost")
    assert "exit code 7" in message[1]


def test_stopping_lets_jobs_have_the_last_word(crew):
    crew.start("slow", wait_for_end, None)
    [(name, message, is_last)] = crew.hear()
    assert (name, message, is_last) == ("slow", ("ready",), False)
    crew.answer("slow", None)
    crew.stop()
    assert hear_last(crew) == ("slow", ("stopped", "in good order"))
