"""What every request passes: errors in one shape, API keys, limits, the log and the metrics."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import re
import secrets
import sys
import time
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from plait.errors import UsageError, suggest
from plait.serve.schemas import BODIES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from fastapi import FastAPI
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from plait.serve.batching import Row

MAX_BODY_BYTES = 1_000_000
MAX_BODY_SECONDS = 10.0


# --- errors ------------------------------------------------------------------------------


class RequestError(HTTPException):
    """A request that is not answered: HTTP status, a code for programs, a sentence for people."""

    def __init__(self, status: int, code: str, message: str, **headers: str):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        super().__init__(status, message, named)
        self.code = code

    def to_response(self, request_id: str) -> Response:
        """Return the JSON response."""
        message = self.detail if self.detail.endswith((".", "?")) else f"{self.detail}."
        content = {"code": self.code, "message": message, "request_id": request_id}
        return JSONResponse({"error": content}, self.status_code, self.headers)


def add_error_handlers(app: FastAPI) -> None:
    """Give every error of an application the same shape."""

    async def handle(request: Request, error: Exception) -> Response:
        found = to_request_error(error, request.url.path)
        request.state.code = found.code
        return found.to_response(request.state.request_id)

    for kind in (UsageError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, handle)


def to_request_error(error: Exception, path: str) -> RequestError:
    """Return an error as one that a client can act on."""
    match error:
        case RequestError():
            return error
        case UsageError():
            return RequestError(422, "invalid", str(error))
        case RequestValidationError():
            return _explain_invalid(error, path)
        case HTTPException(status_code=404):
            return RequestError(404, "not_found", "There is no such page; see /docs")
        case HTTPException(status_code=405):
            allowed = (error.headers or {}).get("Allow", "another method")
            message = f"{path} does not accept this method; use {allowed}"
            return RequestError(405, "method_not_allowed", message, Allow=allowed)
        case HTTPException():
            return RequestError(400, "not_json", "The request body is not valid JSON")
    return RequestError(500, "failed", "The server failed; its log has the request's id")


def _explain_invalid(error: RequestValidationError, path: str) -> RequestError:
    """Explain one thing that is wrong with a request."""
    # Each alternative of a union has an error: that of the right one is deeper or more than a type.
    types = ("string_type", "list_type")
    found = max(error.errors(), key=lambda one: (len(one["loc"]), one["type"] not in types))
    _, *place = found["loc"]
    if found["type"] == "json_invalid":
        return RequestError(400, "not_json", "The request body is not valid JSON")
    if not place:
        message = "Send a JSON object with the header Content-Type: application/json"
        return RequestError(422, "invalid", message)
    where = str(place[0]) + "".join(f"[{part}]" for part in place if isinstance(part, int))
    fields = BODIES[path].model_fields
    if found["type"] == "extra_forbidden":
        message = f"Unknown key {str(place[0])[:80]!r}{suggest(str(place[0])[:80], fields)}"
    elif found["type"] in types and place[0] in fields:
        message = f"{where} has the wrong type. {fields[str(place[0])].description}"
    elif found["type"] == "string_pattern_mismatch":
        message = f"{where}: the text is empty or has a NUL character"
    else:
        message = f"{where}: {found['msg'][:1].lower()}{found['msg'][1:]}"
    return RequestError(422, "invalid", message)


# --- API keys ----------------------------------------------------------------------------

MIN_KEY_CHARS = 16


def read_keys(path: Path) -> tuple[str, ...]:
    """Read a file with one API key per line; lines that begin with # are comments."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    keys = tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))
    if not keys:
        raise UsageError(f"{path} holds no API key; write one per line")
    for number, key in enumerate(keys, 1):
        if len(key) < MIN_KEY_CHARS or not key.isascii():
            raise UsageError(
                f"key {number} of {path} must have {MIN_KEY_CHARS} or more ASCII characters; make "
                "one with `openssl rand -hex 24`"
            )
    return keys


class KeyCheck(HTTPBearer):
    """A dependency that refuses requests without one of the keys, if there are keys."""

    def __init__(self, keys: Sequence[str]):
        super().__init__(auto_error=False)
        self._keys = [key.encode() for key in keys]

    async def __call__(self, request: Request) -> None:  # type: ignore[override]
        """Check a request's key in a time that does not depend on which key is close to it."""
        found = await super().__call__(request)
        given = found.credentials.encode() if found else b""
        if self._keys and not any([secrets.compare_digest(given, key) for key in self._keys]):  # noqa: C419
            message = "Send a valid API key as `Authorization: Bearer KEY`"
            raise RequestError(401, "unauthorized", message, WWW_Authenticate="Bearer")


# --- metrics and log ---------------------------------------------------------------------

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
ROWS = (1, 2, 4, 8, 16, 32)


class Metrics:
    """Prometheus metrics. Several workers share files, so that each shows the totals of all."""

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        self._requests = Counter("plait_requests", "Requests.", ["path", "status"], registry=own)
        self._problems = Counter("plait_problems", "Errors.", ["code"], registry=own)
        self._answers = Counter("plait_answers", "Answers.", ["run", "task"], registry=own)
        self._seconds = Histogram(
            "plait_request_seconds", "Time per request.", ["path"], buckets=SECONDS, registry=own
        )
        self._batch_seconds = Histogram(
            "plait_batch_seconds", "Time per batch.", buckets=SECONDS, registry=own
        )
        self._batch_rows = Histogram(
            "plait_batch_rows", "Rows per batch.", buckets=ROWS, registry=own
        )

    def add_request(self, path: str, status: int, seconds: float, code: str | None) -> None:
        """Count a request."""
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)
        if code is not None:
            self._problems.labels(code).inc()

    def add_batch(self, rows: Sequence[Row], seconds: float) -> None:
        """Count a batch and its answers."""
        self._batch_rows.observe(len(rows))
        self._batch_seconds.observe(seconds)
        for row in rows:
            for task in row.tasks or ("embed",):
                self._answers.labels(row.run, task).inc()

    def show(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


LOG = logging.getLogger("plait.serve")


def set_up_log() -> None:
    """Write the log, and uvicorn's warnings, to standard output as lines of JSON."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    for name, level in (("plait.serve", "INFO"), ("uvicorn", "WARNING")):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


class JsonFormatter(logging.Formatter):
    """Writes a log record as JSON; `extra={"facts": {...}}` adds keys to it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line. An exception gets its type and place: its message may quote a text."""
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "facts", {})
        if record.exc_info and record.exc_info[0] is not None:
            last = traceback.extract_tb(record.exc_info[2])[-1]
            line |= {"error": record.exc_info[0].__name__, "at": f"{last.filename}:{last.lineno}"}
        return json.dumps(line, default=str)


# --- every request -----------------------------------------------------------------------

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")

PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Nothing from other servers, no script or style inside HTML, no HTML made of texts."""


class RequestMiddleware:
    """Gives a request its id, limits its body, and writes it to the log and the metrics."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics):
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else f"{random.getrandbits(64):016x}"
        state = scope["state"] = {**scope.get("state", {}), "request_id": request_id}
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
                if scope["path"] == "/" or scope["path"].startswith("/page/"):
                    headers["Content-Security-Policy"] = PAGE_POLICY
                    headers["Referrer-Policy"] = "no-referrer"
                    headers["Cache-Control"] = "no-cache"
            await send(message)

        try:
            await self._app(scope, limit_body(scope, receive), send_with_headers)
        except Exception as error:
            LOG.error("failed", exc_info=error, extra={"facts": {"request_id": request_id}})
            found = to_request_error(error, scope["path"])
            state["code"] = found.code
            if not status:
                await found.to_response(request_id)(scope, receive, send_with_headers)
        seconds, code = time.monotonic() - began, state.get("code")
        # The route, not the path: a client must not choose the values of a label.
        path = getattr(scope.get("route"), "path", "other")
        self._metrics.add_request(path, status, seconds, code)
        facts = {
            "request_id": request_id,
            "method": scope["method"],
            "path": scope["path"][:200],
            "status": status,
            "ms": round(1000 * seconds, 1),
            **({"code": code} if code else {}),
            **state.get("facts", {}),
        }
        LOG.info("request", extra={"facts": facts})


def limit_body(scope: Scope, receive: Receive) -> Receive:
    """Return a `receive` that refuses a body which is too large or takes too long."""
    deadline = asyncio.get_running_loop().time() + MAX_BODY_SECONDS
    declared = Headers(scope=scope).get("content-length", "0")
    size = int(declared) if declared.isdecimal() and int(declared) > MAX_BODY_BYTES else 0
    is_complete = False

    async def limited() -> Message:
        nonlocal size, is_complete
        if is_complete:
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            reason = f"The body took longer than {MAX_BODY_SECONDS:g} s"
            raise RequestError(408, "slow_body", reason) from None
        size += len(message.get("body", b""))
        is_complete = not message.get("more_body", False)
        if size > MAX_BODY_BYTES:
            reason = f"The body is larger than {MAX_BODY_BYTES:,} bytes"
            raise RequestError(413, "too_large", reason)
        return message

    return limited
