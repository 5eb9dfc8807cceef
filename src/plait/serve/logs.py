"""Events become lines of JSON; texts are in none of them unless asked for."""

from __future__ import annotations

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from types import TracebackType


class Log:
    """Writes events, whoever has one."""

    def __init__(self, stream: TextIO | None = None):
        self._stream = stream or sys.stdout
        self._lock = threading.Lock()

    def write(self, event: str, *, level: str = "info", **facts: Any) -> None:
        """Write one line; facts that are None are left out."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = {"time": now, "level": level, "event": event}
        line |= {name: fact for name, fact in facts.items() if fact is not None}
        text = json.dumps(line, default=str)
        with self._lock:
            try:
                self._stream.write(text + "\n")
                self._stream.flush()
            except (OSError, ValueError):  # nobody reads it any more; answers go on
                pass

    def capture(self) -> None:
        """Take over uvicorn's warnings and errors."""
        logger = logging.getLogger("uvicorn")
        logger.handlers, logger.propagate = [_Handler(self)], False
        logger.setLevel(logging.WARNING)


class _Handler(logging.Handler):
    def __init__(self, log: Log):
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write a library's message."""
        self._log.write(
            "message",
            level=record.levelname.lower(),
            source=record.name,
            message=record.getMessage(),
            where=where(record.exc_info[2]) if record.exc_info else None,
        )


def where(traceback: TracebackType | None) -> str | None:
    """Say in which file and line something was raised, without the values around it."""
    if traceback is None:
        return None
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"
