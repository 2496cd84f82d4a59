"""HTTP proxies in this process that note what they are asked, and that a site can ban."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Asked:
    """A request that a proxy got."""

    host: str
    path: str
    headers: dict[str, str]
    """By lower-case name."""


@dataclass
class ForwardingProxy:
    """Forwards requests in absolute form, one for each connection, and makes tunnels."""

    bans: dict[str, int] = field(default_factory=dict)
    """By host: status that is answered in its place."""
    robots: int = 0
    """Status that is answered in place of every robots.txt; 0: none, -1: the connection is closed, -2: silence."""
    password: str = ""
    """Value of Proxy-Authorization that it wants. Empty: none."""
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    tls: ssl.SSLContext | None = None
    """None: it speaks plain HTTP."""

    _writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http{'s' if self.tls else ''}://127.0.0.1:{self.port}"

    def robots_asked(self) -> int:
        """Number of requests for a robots.txt."""
        return sum(one.path == "/robots.txt" for one in self.asked)

    def pages(self, host: str) -> int:
        """Number of requests for a host's pages."""
        return sum(one.host == host and one.path != "/robots.txt" for one in self.asked)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *lines = head.strip().split("\r\n")
            method, target, _ = line.split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
            parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
            assert parts.hostname, "neither CONNECT nor absolute form"
            self.asked.append(Asked(parts.hostname, parts.path, headers))
            if self.password and headers.get("proxy-authorization") != self.password:
                writer.write(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            elif (status := self.bans.get(parts.hostname)) and parts.path != "/robots.txt":
                writer.write(b"HTTP/1.1 %d Banned\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % status)
            elif parts.path == "/robots.txt" and self.robots < 0:
                if self.robots == -2:
                    await reader.read()
                return
            elif parts.path == "/robots.txt" and self.robots:
                writer.write(b"HTTP/1.1 %d No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n" % self.robots)
            elif method == "CONNECT":
                upstream, sending = await asyncio.open_connection("127.0.0.1", parts.port)
                self._writers.append(sending)
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                await asyncio.gather(_pump(reader, sending), _pump(upstream, writer))
            else:
                upstream, sending = await asyncio.open_connection("127.0.0.1", parts.port or 80)
                self._writers.append(sending)
                own = "".join(
                    f"{one}\r\n" for one in lines if not one.lower().startswith(("proxy-", "connection:", "x-proxy-"))
                )
                sending.write(f"{method} {parts.path} HTTP/1.1\r\n{own}Connection: close\r\n\r\n".encode("latin-1"))
                while piece := await upstream.read(65536):
                    writer.write(piece)
                sending.close()
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def end(self) -> None:
        """End all connections, also those whose farewell in TLS is not over."""
        for writer in self._writers:
            writer.transport.abort()
        for _ in range(3):  # transports tell their protocols in the loop's next rounds, one for each layer
            await asyncio.sleep(0)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy everything, then close."""
    try:
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()


@asynccontextmanager
async def run_forwarding(*proxies: ForwardingProxy) -> AsyncIterator[None]:
    """Serve each proxy on its port, or on a free one, of 127.0.0.1. All connections end with the block."""
    async with AsyncExitStack() as stack:
        tasks: set[asyncio.Task[None]] = set()
        for proxy in proxies:

            async def accept(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, proxy: ForwardingProxy = proxy
            ) -> None:
                task = asyncio.current_task()
                assert task is not None
                tasks.add(task)
                try:
                    await proxy.serve(reader, writer)
                finally:
                    tasks.discard(task)

            server = await asyncio.start_server(accept, "127.0.0.1", proxy.port, ssl=proxy.tls)
            proxy.port = server.sockets[0].getsockname()[1]
            stack.callback(server.close)
        try:
            yield
        finally:
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for proxy in proxies:
                await proxy.end()
