"""A server that resets every connection that is used a second time."""

import asyncio
import socket
import struct
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ResettingServer:
    """A start page with links to `pages` others, at 127.0.0.1, and a log of what was asked."""

    def __init__(self, pages: int) -> None:
        self.port = 0
        self.resets = 0
        self.connections = 0
        self._pages = pages
        self._asked: list[tuple[float, int, str]] = []

    @property
    def times(self) -> list[float]:
        """When each request for a page came, also those that were answered with a reset."""
        return [at for at, _, path in self._asked if path != "/robots.txt"]

    @property
    def reused(self) -> int:
        """How many connections were used more than once."""
        return sum(count > 1 for count in Counter(number for _, number, _ in self._asked).values())

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; reset at the second."""
        self.connections += 1
        number = self.connections
        path = await self._read(reader, number)
        status, body = "200 OK", f"<html><title>{path}</title>".encode()
        if path == "/robots.txt":
            status, body = "404 Not Found", b""
        elif path == "/":
            body += b"".join(b'<a href="/%d">x</a>' % page for page in range(self._pages))
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
        self._asked.append((time.monotonic(), number, path))
        return path


@asynccontextmanager
async def resetting_server(pages: int) -> AsyncIterator[ResettingServer]:
    """Run one while the context lasts."""
    server = ResettingServer(pages)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    async with listening:
        server.port = listening.sockets[0].getsockname()[1]
        yield server
