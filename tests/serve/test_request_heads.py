"""Heads of requests that are too long or too slow, and those of honest clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvicorn
from uvicorn.server import ServerState

from plait.serve.heads import limit_heads
from plait.serve.limits import Limits

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bytes]]


async def answer(scope, receive, send):
    """Read the body, wait a moment, say its length."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await asyncio.sleep(0.1 if scope["path"] == "/" else 2)
    body = b"%d" % size
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def talk_to(talk: Talk, *, seconds: float = 0.5) -> bytes:
    """Return what a client hears that says something to a server."""
    protocol = limit_heads(Limits(head_seconds=seconds, head_bytes=10_000))

    async def run() -> bytes:
        config = uvicorn.Config(answer, http=protocol, ws="none", log_config=None)
        config.load()
        state, loop = ServerState(), asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: protocol(config=config, server_state=state, app_state={}), "127.0.0.1", 0
        )
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            try:
                return await asyncio.wait_for(talk(reader, writer), 20)
            finally:
                writer.close()

    return asyncio.run(run())


def test_a_head_that_never_ends_is_refused_at_its_limit():
    async def talk(reader, writer):
        writer.write(HEAD + b"X: ")
        heard = asyncio.create_task(reader.read(12))
        for _ in range(10):
            writer.write(b"x" * 1000)
            await asyncio.sleep(0.02)
        return await heard

    assert talk_to(talk, seconds=10) == b"HTTP/1.1 431"


def test_a_head_that_drips_is_given_up():
    async def talk(reader, writer):
        writer.write(HEAD)
        heard = asyncio.create_task(reader.read())
        while not heard.done():
            writer.write(b"X: y\r\n")
            await asyncio.sleep(0.05)
        return heard.result()

    assert talk_to(talk).startswith(b"HTTP/1.1 408 ")


def test_a_client_that_talks_on_still_hears_why():
    """Words that nobody reads before the end would reset the connection, and the answer with it."""

    async def talk(reader, writer):
        writer.write(HEAD + b"X: " + b"x" * 5_000_000)
        await asyncio.sleep(0.3)
        return await reader.read()

    assert talk_to(talk, seconds=10).startswith(b"HTTP/1.1 431 ")


def test_a_client_that_never_stops_is_hung_up_on(monkeypatch):
    monkeypatch.setattr("plait.serve.heads.LINGER_S", 0.2)

    async def talk(reader, writer):
        writer.write(HEAD)
        with pytest.raises(ConnectionError):  # noqa: PT012
            while True:
                writer.write(b"X: y\r\n")
                await writer.drain()
                await asyncio.sleep(0.05)
        return b"it did"

    assert talk_to(talk) == b"it did"


def test_a_connection_that_says_nothing_ends():
    async def talk(reader, writer):
        return await reader.read()

    assert talk_to(talk) == b""


def test_empty_lines_after_an_answer_keep_no_connection():
    """They stop uvicorn's own clock, and begin no request."""

    async def talk(reader, writer):
        writer.write(HEAD + b"\r\n")
        heard = asyncio.create_task(reader.read())
        while not heard.done():
            writer.write(b"\r\n")
            await asyncio.sleep(0.05)
        return heard.result()

    told = talk_to(talk)
    assert told.startswith(b"HTTP/1.1 200 ")
    assert b"HTTP/1.1 408 " in told


def test_long_bodies_and_slow_answers_are_no_matter_of_heads():
    """The body is beyond a head's limit, and its answer takes longer than a head may."""

    async def talk(reader, writer):
        writer.write(
            b"POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000\r\n"
            b"Connection: close\r\n\r\n"
        )
        for _ in range(50):
            writer.write(b"x" * 1000)
            await asyncio.sleep(0.005)
        return await reader.read()

    told = talk_to(talk)
    assert told.startswith(b"HTTP/1.1 200 ")
    assert told.endswith(b"50000")


def test_a_head_begun_during_an_answer_does_not_end_it():
    async def talk(reader, writer):
        writer.write(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.sleep(0.1)
        writer.write(HEAD)
        told = await reader.readuntil(b"\r\n\r\n0")
        writer.write(b"Connection: close\r\n\r\n")
        return told + await reader.read()

    assert talk_to(talk, seconds=1.5).count(b"HTTP/1.1 200 ") == 2


def test_a_head_too_long_during_an_answer_does_not_end_it(caplog):
    """The answer goes out whole, then the word about what came after it."""

    async def talk(reader, writer):
        writer.write((HEAD + b"\r\n") * 2)
        await asyncio.sleep(0.02)
        writer.write(HEAD + b"X: " + b"x" * 50_000)
        return await reader.read()

    told = talk_to(talk, seconds=10)
    assert [part[:3] for part in told.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"431"]
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_head_too_long_during_the_last_answer_is_not_told():
    async def talk(reader, writer):
        writer.write(HEAD + b"Connection: close\r\n\r\n")
        await asyncio.sleep(0.02)
        writer.write(HEAD + b"X: " + b"x" * 50_000)
        return await reader.read()

    told = talk_to(talk, seconds=10)
    assert told.startswith(b"HTTP/1.1 200 ")
    assert told.count(b"HTTP/1.1 ") == 1
