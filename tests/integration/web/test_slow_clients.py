"""Clients that stop in the middle of a request, on real connections."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from gossamer.web.bodies import BodyLimit
from gossamer.web.connections import ConnectionLimits
from gossamer.web.server import ServerOptions, serve

_PATIENCE = 60.0


async def _length(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the length of the body; as FastAPI does, with 400 if it does not come."""
    try:
        response = PlainTextResponse(str(len(await Request(scope, receive).body())))
    except ClientDisconnect:
        response = PlainTextResponse("broken off", 400)
    await response(scope, receive, send)


@contextlib.asynccontextmanager
async def _served(
    pause_seconds: float = _PATIENCE,
    *,
    total_seconds: float = _PATIENCE,
    longest: float = 1e6,
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server."""
    app = BodyLimit(_length, longest=lambda path: longest, pause_seconds=pause_seconds, total_seconds=total_seconds)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopping = asyncio.Event()
        options = ServerOptions(limits=limits or ConnectionLimits())
        serving = asyncio.create_task(serve(app, [listener], stopping, options))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            yield reader, writer
        finally:
            writer.close()
            stopping.set()
            await serving


_HEAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"


async def test_a_body_that_stops_is_answered_with_408_and_the_connection_closed() -> None:
    async with _served(0.2) as (reader, writer), asyncio.timeout(_PATIENCE):
        writer.write(_HEAD + b"x" * 50_000)
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"took too long" in answer


async def test_a_body_that_trickles_is_answered_with_408() -> None:
    async with _served(1.0) as (reader, writer), asyncio.timeout(_PATIENCE):
        writer.write(_HEAD)
        answered = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))  # what is written late resets the connection
        while not answered.done():
            with contextlib.suppress(ConnectionError):
                writer.write(b"x")
                await writer.drain()
            await asyncio.wait({answered}, timeout=0.05)
        assert answered.result().startswith(b"HTTP/1.1 408 ")


async def test_a_body_may_pause_now_and_then() -> None:
    async with _served(_PATIENCE) as (reader, writer), asyncio.timeout(_PATIENCE):
        writer.write(_HEAD + b"x" * 50_000)
        await writer.drain()
        await asyncio.sleep(0.5)
        writer.write(b"x" * 50_000)
        answer = await reader.readuntil(b"\r\n\r\n100000")
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_a_body_whose_whole_time_is_over_is_answered_with_408() -> None:
    async with _served(total_seconds=0.2) as (reader, writer), asyncio.timeout(_PATIENCE):
        writer.write(_HEAD + b"x" * 50_000)
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("body", [b"x" * 1000, b""])
async def test_a_body_that_is_too_long_is_refused_also_unsent(body: bytes) -> None:
    async with _served(longest=99_999) as (reader, writer), asyncio.timeout(_PATIENCE):
        writer.write(_HEAD.replace(b"Host", b"Expect: 100-continue\r\nHost") + body)
        answer = await reader.readuntil(b"}")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"the body has 100,000 bytes, 99,999 are allowed" in answer


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_a_connection_without_a_request_is_closed(sent: bytes) -> None:
    limits = ConnectionLimits(first_byte=0.2, head=0.2)
    async with _served(limits=limits) as (reader, writer), asyncio.timeout(_PATIENCE):
        writer.write(sent)
        assert await reader.read() == b""


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked", b"send one of them"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5", b"send one of them"),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive", b"needs HTTP/1.1"),
    ],
)
async def test_a_body_with_two_ends_is_refused_and_the_connection_closed(head: bytes, reason: bytes) -> None:
    """A proxy that sees the other end would take the second request for another client's."""
    async with _served() as (reader, writer), asyncio.timeout(_PATIENCE):
        writer.write(head + b"\r\nHost: x\r\n\r\n5\r\nabcde\r\n0\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert reason in answer
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_a_chunked_body_is_read() -> None:
    async with _served() as (reader, writer), asyncio.timeout(_PATIENCE):
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n0\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n5")).startswith(b"HTTP/1.1 200 ")
