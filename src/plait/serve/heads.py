"""Requests' heads: they must be short, and come soon.

uvicorn hands a request on once its head is whole, and waits for that as long as the client likes,
with all that came in memory. Bodies are the gate's to watch.
"""

from __future__ import annotations

from asyncio import TimerHandle
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from asyncio import Transport

    from plait.serve.limits import Limits


LINGER_S = 2.0
"""Seconds in which a client that is refused may still talk, unheard. A socket that is closed with
words unread resets the connection, and why it was refused is lost on the way."""


def limit_heads(limits: Limits) -> type[HttpToolsProtocol]:
    """Return what uvicorn speaks HTTP with, for heads within the limits."""

    class Connection(HttpToolsProtocol):
        """A connection that ends when a head is too long or too slow."""

        def __init__(self, *args: Any, **kwargs: Any):
            super().__init__(*args, **kwargs)
            self._timer: TimerHandle | None = None
            self._num_bytes = 0
            self._is_in_body = self._had_end = self._is_refused = False
            self._refusal = b""

        def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._rest()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._is_refused:
                return
            self._had_end = False
            super().data_received(data)
            if self._is_in_body or self._had_end or self.transport.is_closing():
                return
            self._num_bytes += len(data)
            if self._num_bytes > limits.head_bytes:
                self._refuse(b"431 Request Header Fields Too Large")
            else:
                self._watch()

        def on_headers_complete(self) -> None:
            self._rest()
            self._is_in_body = True
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            self._is_in_body, self._had_end = False, True
            super().on_message_complete()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self._refusal and not self._is_answering() and not self.transport.is_closing():
                self._tell(self._refusal)

        def _is_answering(self) -> bool:
            return self.cycle is not None and not self.cycle.response_complete

        def _watch(self) -> None:
            if self._timer is None:
                self._timer = self.loop.call_later(limits.head_seconds, self._give_up)

        def _rest(self) -> None:
            self._num_bytes = 0
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            self._timer = None
            if self._is_answering():
                self._watch()  # the request before it is still being answered
            elif self._num_bytes:
                self._refuse(b"408 Request Timeout")
            else:
                self.transport.close()

        def _refuse(self, status: bytes) -> None:
            """Hear no more, and say why, once the requests before it are answered."""
            self._rest()
            self._is_refused = True
            if self._is_answering():
                self._refusal = status
            else:
                self._tell(status)

        def _tell(self, status: bytes) -> None:
            """Say it in a line, since there is no request yet to answer, and hang up."""
            end = b"\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            self.transport.write(b"HTTP/1.1 " + status + end)
            if self.transport.can_write_eof():
                self.transport.write_eof()
                self._timer = self.loop.call_later(LINGER_S, self.transport.close)
            else:
                self.transport.close()

    return Connection
