"""One server for all interfaces: each limit that only one of them had holds for the platform and for the API."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from gossamer.net.guard import Network
from gossamer.net.listening import listen_unix
from gossamer.web.connections import ConnectionLimits
from gossamer.web.server import ServerOptions, serve
from gossamer.web.streams import MAX_STREAMS, EventStreamResponse, EventStreams, event
from gossamer_platform.serving import services

_PATIENCE = 60.0


class _Platform:
    """An application in place of the platform's, for its server."""

    def __init__(self) -> None:
        self.streams = EventStreams()
        self.clients: list[str] = []
        """Client of each request, the earliest first. Empty: none."""

    def stop_streams(self) -> None:
        self.streams.closing.set()

    async def _events(self) -> AsyncIterator[bytes]:
        yield event("begin", b"{}")
        await self.streams.closing.wait()
        yield event("last", b"{}")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.clients.append(request.client.host if request.client else "")
        response: Response
        match request.url.path:
            case "/events":
                response = EventStreamResponse(self._events(), self.streams)
            case "/large":
                response = Response(b"x" * 50_000_000)
            case _:
                response = JSONResponse({"client": self.clients[-1], "scheme": request.url.scheme})
        await response(scope, receive, send)


@contextlib.asynccontextmanager
async def _served(
    app: _Platform, listening: socket.socket | None = None, *, proxies: Sequence[Network] = ()
) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """The platform's server; yields its address, and the event that stops it."""
    with listening or socket.create_server(("127.0.0.1", 0), backlog=512) as sock:
        stopping = asyncio.Event()
        serving = asyncio.create_task(
            services.serve_within_limits(app, [sock], stopping, on_stopping=app.stop_streams, trusted_proxies=proxies)
        )
        name = sock.getsockname()
        try:
            yield (name if isinstance(name, str) else f"http://127.0.0.1:{name[1]}"), stopping
        finally:
            stopping.set()
            await serving


async def _until_closed(reader: asyncio.StreamReader) -> None:
    """Read until the server closes the connection."""
    async with asyncio.timeout(_PATIENCE):
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                pass


async def test_a_program_cannot_name_another_client_to_the_platform() -> None:
    headers = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}
    async with _served(_Platform()) as (address, _), httpx.AsyncClient(base_url=address) as http:
        assert (await http.get("/", headers=headers)).json() == {"client": "127.0.0.1", "scheme": "http"}


async def test_a_trusted_proxy_names_the_client_to_the_platform() -> None:
    headers = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "https"}
    served = _served(_Platform(), proxies=[ip_network("127.0.0.1")])
    async with served as (address, _), httpx.AsyncClient(base_url=address) as http:
        assert (await http.get("/", headers=headers)).json() == {"client": "192.0.2.1", "scheme": "https"}


async def test_a_request_whose_client_has_reset_the_connection_is_not_taken_for_one_of_a_unix_socket() -> None:
    """Its socket does not know any more from where it came, and a Unix socket is trusted."""
    app = _Platform()
    async with _served(app) as (address, _), httpx.AsyncClient(base_url=address) as http:
        for _ in range(10):  # the server accepts none of them before the next `await`
            sock = socket.create_connection(("127.0.0.1", httpx.URL(address).port))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.sendall(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            sock.close()
        assert (await http.get("/")).json()["client"] == "127.0.0.1"
    assert app.clients == ["127.0.0.1"]


async def test_idle_connections_keep_nobody_from_the_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_LIMITS", replace(services._LIMITS, per_client=50))
    async with _served(_Platform()) as (address, _), contextlib.AsyncExitStack() as closing:
        port = httpx.URL(address).port
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
        for _, writer in idle:
            closing.callback(writer.close)
        http = await closing.enter_async_context(httpx.AsyncClient(base_url=address))
        assert (await http.get("/")).status_code == 200
        for reader, _ in idle[:10]:
            await _until_closed(reader)


async def test_a_client_that_reads_nothing_loses_its_connection_to_the_platform(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(services, "_LIMITS", replace(services._LIMITS, unread=0.2))
    async with _served(_Platform()) as (address, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(address).port, limit=1024)
        reader._transport.pause_reading()
        writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(_PATIENCE):
            with contextlib.suppress(ConnectionError):
                while not reader.at_eof():
                    writer.write(b"x")
                    await writer.drain()
                    await asyncio.sleep(0.01)
        writer.close()


async def test_a_client_that_sends_too_many_requests_to_the_platform_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "_REQUESTS_PER_SECOND", 0.001)
    async with _served(_Platform()) as (address, _), httpx.AsyncClient(base_url=address) as http:
        statuses = [(await http.get("/")).status_code for _ in range(2)]
        assert statuses == [200, 429]


async def test_a_unix_socket_has_no_limits_for_one_client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All clients of the proxy behind it would have one."""
    monkeypatch.setattr(services, "_REQUESTS_PER_SECOND", 0.001)
    monkeypatch.setattr(services, "_LIMITS", ConnectionLimits(per_client=1))
    async with _served(_Platform(), listen_unix(str(tmp_path / "s"))) as (path, _), contextlib.AsyncExitStack() as all_:
        for _ in range(4):
            transport = httpx.AsyncHTTPTransport(uds=path)
            http = await all_.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://x"))
            assert (await http.get("/")).status_code == 200


async def test_one_stream_too_many_is_refused_and_does_not_wait() -> None:
    app = _Platform()
    app.streams.open = MAX_STREAMS
    with pytest.raises(Exception, match="event streams are open already"):
        await EventStreamResponse(app._events(), app.streams)({"type": "http"}, None, None)  # type: ignore[arg-type]


async def test_a_stop_ends_the_platforms_streams_whole() -> None:
    async with (
        _served(_Platform()) as (address, stopping),
        httpx.AsyncClient(base_url=address) as http,
        http.stream("GET", "/events") as answer,
    ):
        assert answer.headers["x-accel-buffering"] == "no"
        lines = answer.aiter_lines()
        assert await anext(lines) == "event: begin"
        stopping.set()
        assert "event: last" in [line async for line in lines]


async def test_headers_have_one_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        stopping = asyncio.Event()
        serving = asyncio.create_task(serve(_Platform(), [sock], stopping, ServerOptions()))
        end = b"\r\nConnection: close\r\n\r\n"
        for rest, expected in ((b"x" * 30_000 + end, b"HTTP/1.1 200 "), (b"x" * 40_000, b"HTTP/1.1 400 ")):
            reader, writer = await asyncio.open_connection(*sock.getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX: " + rest)
            assert (await reader.read()).startswith(expected)
            writer.close()
        stopping.set()
        await serving
