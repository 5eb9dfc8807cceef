"""Ctrl-C: signals that come together count as one press."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Handler = Callable[[int, Any], None]

AT_ONCE_S = 0.5
"""Seconds in which signals count as one: `timeout` sends one to its child and one to the group that
the child is in, and a launcher passes on what the terminal has sent already."""


def count_once(handler: Handler, *, heard: bool = False) -> Handler:
    """Return a handler that counts signals in quick succession as one."""
    last = time.monotonic() if heard else float("-inf")

    def hear(number: int, frame: Any) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= AT_ONCE_S:
            last = now
            handler(number, frame)

    return hear


@contextmanager
def presses_counted() -> Iterator[None]:
    """Let each press of Ctrl-C raise one KeyboardInterrupt, even if it sends several signals."""
    default = signal.default_int_handler
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not default:  # a shell's job may ignore it
        yield
        return
    signal.signal(signal.SIGINT, count_once(default))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, default)
