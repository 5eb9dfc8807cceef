"""What every request passes: an id, a line in the log, limits of its size, its key."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders

from plait.serve.keys import is_loopback
from plait.serve.logs import where
from plait.serve.problems import GONE, Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from plait.serve.keys import Keys
    from plait.serve.limits import Limits
    from plait.serve.logs import Log
    from plait.serve.metrics import Metrics

_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
"""What a client may call its request; anything else could forge lines of the log."""

PATHS = (
    *("/v1/predict", "/v1/explain", "/v1/embed", "/v1/runs", "/v1/tasks"),
    *("/healthz", "/readyz", "/metrics"),
)
BELOW = "/v1/runs/"
"""Before the name of a run, which is no figure's label."""


class Gate:
    """Wraps an application."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: Limits,
        keys: Keys,
        log: Log,
        metrics: Metrics,
        local_only: bool,
    ):
        self._app, self._limits, self._keys = app, limits, keys
        self._log, self._metrics, self._local_only = log, metrics, local_only
        self._num_requests = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        state: dict[str, Any] = {"request_id": given if _ID.fullmatch(given) else uuid.uuid4().hex}
        scope["state"] = {**scope.get("state", {}), **state}
        state = scope["state"]
        answered = {"status": 0}

        async def tell(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered["status"] = message["status"]
                out = MutableHeaders(scope=message)
                out["X-Request-ID"] = state["request_id"]
                out["X-Content-Type-Options"] = "nosniff"
            await send(message)

        self._num_requests += 1
        try:
            self._admit(scope["path"], headers)
            body = await self._read(headers, receive)
            await self._app(scope, _replay(body, receive), tell)
        except Problem as problem:
            state["code"] = problem.code
            await problem.respond(state["request_id"])(scope, receive, tell)
        except Exception as error:
            state["code"] = "failed"
            self._log.write(
                "failed",
                level="error",
                request_id=state["request_id"],
                error=type(error).__name__,
                where=where(error.__traceback__),
            )
            if not answered["status"]:
                told = Problem(500, "failed", "the server failed; its log has the request's id")
                await told.respond(state["request_id"])(scope, receive, tell)
        finally:
            self._num_requests -= 1
            self._record(scope, state, answered["status"], time.monotonic() - began)

    def _record(self, scope: Scope, state: dict[str, Any], status: int, seconds: float) -> None:
        path = scope["path"] if scope["path"] in PATHS else "other"
        path = f"{BELOW}*" if scope["path"].startswith(BELOW) else path
        self._metrics.request(path, status, seconds, state.get("code"))
        self._log.write(
            "request",
            request_id=state["request_id"],
            method=scope["method"],
            path=scope["path"][:200],
            status=status,
            ms=round(1000 * seconds, 1),
            code=state.get("code"),
            **state.get("facts", {}),
        )

    def _admit(self, path: str, headers: Headers) -> None:
        if self._local_only and not is_loopback(_host_of(headers)):
            # A page of somebody else's whose name leads here must not read answers.
            raise Problem(
                400,
                "wrong_host",
                "this server is for this machine; ask it as localhost or 127.0.0.1, or start it "
                "with API keys to use it under other names",
            )
        is_asked = path.startswith("/v1/") or path == "/metrics"
        if self._local_only and is_asked and headers.get("sec-fetch-site") == "cross-site":
            # It could not read the answer, but have it made, and again.
            raise Problem(
                400,
                "wrong_site",
                "a page of another site asks; this server is for this machine, so open its own "
                "page, or start it with API keys",
            )
        if is_asked and not self._keys.admit(_key_of(headers)):
            raise Problem(
                401,
                "unauthorized",
                "send one of this server's API keys as `Authorization: Bearer KEY`",
                {"WWW-Authenticate": "Bearer"},
            )
        if self._num_requests > self._limits.requests:
            message = "too many requests are under way; come again in a second"
            raise Problem(429, "busy", message, {"Retry-After": "1"})

    async def _read(self, headers: Headers, receive: Receive) -> bytes:
        """Return the whole body, no longer than it may be."""
        most = self._limits.body_bytes
        declared = headers.get("content-length", "0")
        too_large = Problem(
            413,
            "too_large",
            f"the body may have {most:,} bytes; send the inputs in several requests",
            {"Connection": "close"},
        )
        if declared.isdecimal() and int(declared) > 8 * most:
            raise too_large
        pieces: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(GONE, "gone", "the client went away while it was sending")
                    piece = message.get("body", b"")
                    size += len(piece)
                    if size <= most:
                        pieces.append(piece)
                    # A little too much is read to its end, since a client that is still sending
                    # would see a broken connection instead of the answer.
                    if size > 8 * most:
                        raise too_large
                    if not message.get("more_body", False):
                        break
        except TimeoutError as error:
            seconds = self._limits.body_seconds
            message_ = f"the body did not come within {seconds:g} s; send it again, faster"
            raise Problem(408, "slow_body", message_, {"Connection": "close"}) from error
        if size > most:
            raise too_large
        return b"".join(pieces)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read already, then whatever comes after it."""
    is_given = False

    async def give() -> Message:
        nonlocal is_given
        if is_given:
            return await receive()
        is_given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return give


def _host_of(headers: Headers) -> str:
    """Return the name that the client asked, without the port."""
    host = headers.get("host", "")
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()


def _key_of(headers: Headers) -> str | None:
    kind, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if kind.lower() == "bearer" else headers.get("x-api-key")
