"""An application over the tiny run, asked in this process."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="plait[serve] is not installed")
httpx = pytest.importorskip("httpx", reason="httpx is not installed")

from plait.serve.app import make_app  # noqa: E402
from plait.serve.keys import Keys  # noqa: E402
from plait.serve.limits import Limits  # noqa: E402
from plait.serve.logs import Log  # noqa: E402
from plait.serve.models import Models  # noqa: E402
from plait.serve.parcels import Answer, Ask, RunsToLoad  # noqa: E402


@pytest.fixture(scope="session")
def models(tiny_run: Path) -> Models:
    return Models.load(RunsToLoad({"tiny": tiny_run}, device="cpu", precision="fp32"))


class Held:
    """Models that answer only when let go, and remember what they were asked."""

    def __init__(self, models: Models):
        self.models, self.go, self.asked = models, Event(), []

    def answer(self, ask: Ask) -> list[Answer]:
        self.asked.append(ask)
        assert self.go.wait(30)
        return self.models.answer(ask)

    def is_alive(self) -> bool:
        return True

    def restart(self) -> None:
        raise AssertionError

    def close(self) -> None:
        pass


@pytest.fixture
def held(models: Models) -> Held:
    return Held(models)


class Client(httpx.AsyncClient):
    """Asks an application in this process; `log` has its lines."""

    lines: io.StringIO
    app: Any

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines.getvalue().splitlines()]

    async def predict(self, inputs: Any, **more: Any) -> httpx.Response:
        return await self.post("/v1/predict", json={"inputs": inputs, **more})


Serving = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
def serving(models: Models) -> Serving:
    @asynccontextmanager
    async def open_(
        *,
        limits: Limits | None = None,
        keys: tuple[str, ...] = (),
        backends: Any = None,
        catalog: Any = None,
        **more: Any,
    ) -> AsyncIterator[Client]:
        lines = io.StringIO()
        app = make_app(
            catalog or models.catalog,
            backends or [models],
            limits=limits or Limits(),
            keys=Keys(list(keys)),
            log=Log(lines),
            **more,
        )
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
        async with (
            app.router.lifespan_context(app),
            Client(transport=transport, base_url="http://localhost", timeout=30) as client,
        ):
            client.lines, client.app = lines, app
            yield client

    return open_


@pytest.fixture
def asking(serving: Serving) -> Callable[..., Any]:
    """Ask one thing of a fresh application and return the response."""

    def ask(method: str, path: str, *, given: dict[str, Any] | None = None, **more: Any) -> Any:
        async def go() -> httpx.Response:
            async with serving(**(given or {})) as client:
                return await client.request(method, path, **more)

        return asyncio.run(go())

    return ask


def problem(response: httpx.Response, status: int) -> str:
    """Check the one shape of errors and return the code."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"code", "message", "request_id"}
    assert error["request_id"] == response.headers["x-request-id"]
    assert "Traceback" not in response.text
    return error["code"]


@pytest.fixture
def code() -> Callable[[httpx.Response, int], str]:
    return problem
