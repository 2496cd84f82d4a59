"""A crawl of a server that resets every connection that is used a second time."""

import asyncio
import socket
import struct
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.servers.crawling import crawl

PAGES = 30
HITS = 10


@dataclass
class Log:
    """What the server saw."""

    asked: list[tuple[float, int, str]] = field(default_factory=list)
    """When, on which connection, for what."""
    resets: int = 0
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; reset at the second."""
        self.connections += 1
        number = self.connections
        path = await self._read(reader, number)
        status, body = "200 OK", b"<html>"
        if path == "/robots.txt":
            status, body = "404 Not Found", b""
        elif path == "/":
            body += b"".join(b'<a href="/%d">x</a>' % page for page in range(PAGES))
        head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        try:
            await self._read(reader, number)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        self.resets += 1
        sock: socket.socket = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader, number: int) -> str:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ", 2)[1].decode()
        self.asked.append((time.monotonic(), number, path))
        return path


async def test_a_server_that_resets_reused_connections_gets_no_more_than_its_budget(tmp_path: Path) -> None:
    """Each repeated request takes another hit, and after two resets each request has its own connection."""
    log = Log()
    server = await asyncio.start_server(log.serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        seed = f"http://resets.test:{port}/"
        crawled = await crawl(
            tmp_path, [seed], ["*:127.0.0.1"], crawl__rate=f"{HITS}/1", fetch__retry_base=60.0, fetch__timeout=10.0
        )
    pages = crawled.by_url()
    assert len(pages) == PAGES + 1
    assert all(page.success and page.attempt == 0 for page in pages.values())
    times = [at for at, _, path in log.asked if path != "/robots.txt"]
    assert len(times) == PAGES + 1 + log.resets
    assert all(times[at + HITS] - times[at] > 0.8 for at in range(len(times) - HITS))
    requests = Counter(number for _, number, _ in log.asked)
    assert sorted(requests.values(), reverse=True) == [2, 2, *[1] * (log.connections - 2)]
