"""What goes wrong becomes one shape: a status, a code for programs, a sentence for people."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Match, Route

from plait.errors import suggest
from plait.serve.schemas import UNKNOWN_KEY, ProblemResponse

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.requests import Request


GONE = 499
"""nginx's status of a request whose client has left: for the log, since nobody hears it."""


@dataclass(eq=False)  # not frozen: Python writes where an exception was raised into it
class Problem(Exception):  # noqa: N818 - the word of RFC 9457
    """A request that is not answered, and why."""

    status: int
    code: str
    message: str
    headers: dict[str, str] = field(default_factory=dict)

    def respond(self, request_id: str) -> Response:
        """Make the response."""
        inside = {"code": self.code, "message": self.message, "request_id": request_id}
        return respond({"error": inside}, self.status, self.headers)


def respond(
    values: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> Response:
    """Make a response of plain values, without looking through them again."""
    text = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Half a surrogate pair, as only a broken client sends, is no UTF-8.
    body = text.encode("utf-8", errors="backslashreplace")
    return Response(body, status, headers, media_type="application/json")


MEANINGS = {
    400: "The request is no JSON, or not meant for this server.",
    401: "The API key is missing or wrong.",
    404: "There is no such run or page.",
    408: "The request's body did not come in time.",
    413: "The request's body is too large.",
    415: "The request's body is not sent as JSON.",
    422: "The request says something that cannot be answered; the message says what.",
    429: "Too much is under way; Retry-After says when to come again.",
    500: "A model failed; the log has the request's id.",
    503: "No worker could answer, or the server is stopping.",
    504: "It took too long.",
}


def describe_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Tell OpenAPI which problems an endpoint has."""
    return {
        status: {"model": ProblemResponse, "description": MEANINGS[status]} for status in statuses
    }


def handle_problems(app: FastAPI) -> None:
    """Give every error of an application the one shape."""

    @app.exception_handler(Problem)
    async def known(request: Request, error: Problem) -> Response:
        request.state.code = error.code
        return error.respond(request.state.request_id)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return await known(request, _explain(error))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        # The page's files answer GET at every address, also where something else takes POST.
        others = _methods_at(request) if error.status_code in (404, 405) else []
        if others:
            headers["Allow"] = ", ".join(others)
            error = HTTPException(405, headers=headers)
        if error.status_code == 404:
            told = Problem(404, "not_found", "there is nothing here; /docs lists what there is")
        elif error.status_code == 405:
            allowed = headers.get("allow") or headers.get("Allow") or "another one"
            message = f"this address does not take {request.method}; use {allowed}"
            told = Problem(405, "method_not_allowed", message, headers)
        elif error.status_code == 400:  # which FastAPI answers where Python's reader gives up
            message = "the body is no JSON that can be read; send UTF-8, with few brackets inside "
            told = Problem(400, "not_json", f"{message}each other, as /docs shows")
        else:
            code = "bad_request" if error.status_code < 500 else "failed"
            told = Problem(error.status_code, code, f"{error.detail}; see /docs", headers)
        return await known(request, told)


def _methods_at(request: Request) -> list[str]:
    """Return the methods that an address takes, where it is one of the API's."""
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is Match.PARTIAL:
            return sorted(route.methods or ())
    return []


def _explain(error: RequestValidationError) -> Problem:
    """Say the first thing that is wrong with a body, and where."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        where = first["loc"][-1] if len(first["loc"]) > 1 else 0
        message = f"the body is no JSON, from character {where} on; send an object as /docs shows"
        return Problem(400, "not_json", message)
    place = [str(part) for part in first["loc"] if part not in ("body", "query")]
    # A union's alternatives are named after their types, which says nothing to a client.
    names = [part for part in place if part.isidentifier() and part not in ("str", "list")]
    where = names[0] if names else "the body"
    if first["type"] == "missing":
        message = f"{where} is missing; /docs shows an example"
    elif first["type"] == UNKNOWN_KEY:
        key = first["ctx"]["key"]
        told = key if key.isidentifier() else f"the key {key!r}"
        message = f"{told} is not known{suggest(key, first['ctx']['known'])}"
    elif where == "the body":
        message = (
            "the body is not sent as a JSON object; send one with Content-Type: application/json, "
            "as /docs shows"
        )
    elif where == "inputs":
        message = (
            "inputs is one text or a list of inputs, each a text that is not empty or, for tasks "
            "on pairs, a list of two; /docs shows an example"
        )
    else:
        message = f"{where}: {first['msg'][:1].lower()}{first['msg'][1:]}; /docs shows an example"
    return Problem(422, "invalid", message)
