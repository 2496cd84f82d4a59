"""Clients that stop in the middle of a request, on real connections."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from gossamer_platform.serving import time_limits
from gossamer_platform.serving.hosting import serve_app
from tests.servers.platform import RunningManager, running
from tests.servers.scrapyd import until

_PATIENCE = 60.0


async def _length(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the length of the body; as FastAPI does, with 400 if it does not come."""
    try:
        response = PlainTextResponse(str(len(await Request(scope, receive).body())))
    except ClientDisconnect:
        response = PlainTextResponse("broken off", 400)
    await response(scope, receive, send)


@contextlib.asynccontextmanager
async def _served(pause_seconds: float) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection to a server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopping = asyncio.Event()
        serving = asyncio.create_task(serve_app(_length, [listener], stopping, pause_seconds=pause_seconds))
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
        answered = asyncio.create_task(reader.read())
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


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_a_connection_without_a_request_is_closed(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    monkeypatch.setattr(time_limits, "_HEAD_SECONDS", 0.2)
    async with _served(_PATIENCE) as (reader, writer), asyncio.timeout(_PATIENCE):
        writer.write(sent)
        assert await reader.read() == b""


def test_uploads_that_stop_are_not_in_memory(tmp_path: Path) -> None:
    """Six uploads, each of which stops before its end."""
    part, count = 24 * 1024 * 1024, 6
    manager = RunningManager(tmp_path, limit_seconds=60.0)

    def memory() -> int:
        assert manager.process is not None
        status = Path(f"/proc/{manager.process.pid}/status").read_text()
        return 1024 * int(status.partition("RssAnon:")[2].split()[0])

    def kept() -> int:
        """Bytes of files without a name that the manager has open."""
        assert manager.process is not None
        found = 0
        for entry in Path(f"/proc/{manager.process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if "uploads" in str(entry.readlink()):
                    found += entry.stat().st_size
        return found

    with running(manager), contextlib.ExitStack() as open_sockets:
        before = memory()
        for path in ("/v1/versions?project=a&version=1", "/addversion.json", "/cloud/api/scrapyd/addversion.json") * 2:
            upload = open_sockets.enter_context(socket.create_connection(("127.0.0.1", manager.port)))
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {part + 1}\r\n\r\n"
            upload.sendall(head.encode() + b"x" * part)
        until(lambda: kept() > 0.9 * part * count, what=lambda: f"{kept()} {manager.said()}")
        assert memory() - before < 2 * part
        assert manager.client.get("/daemonstatus.json").json()["status"] == "ok"
