"""A server for tests that keeps each request as it came."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass
class Heard:
    """One request as a server got it, byte for byte."""

    head: str
    body: bytes

    def header(self, name: str) -> str | None:
        for line in self.head.split("\r\n")[1:]:
            key, _, value = line.partition(": ")
            if key.lower() == name:
                return value
        return None


@asynccontextmanager
async def listening(
    answers: dict[str, bytes] | None = None, bodies: dict[str, bytes] | None = None
) -> AsyncIterator[tuple[int, list[Heard]]]:
    """A server that keeps what it hears; answers by path are whole heads, else 200, with HTML by path or no body."""
    heard: list[Heard] = []
    connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections[writer] = task
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                request = Heard(head, b"")
                request.body = await reader.readexactly(int(request.header("content-length") or 0))
                path = head.split(" ", 2)[1]
                if path != "/robots.txt":
                    heard.append(request)
                status = b"404 No" if path == "/robots.txt" else (answers or {}).get(path, b"200 OK")
                page = (bodies or {}).get(path, b"")
                about = b"Content-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(page)
                writer.write(b"HTTP/1.1 " + status + b"\r\n" + about + page)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], heard
    finally:
        server.close()
        for writer in connections:
            writer.close()  # clients in other processes keep theirs
        await asyncio.gather(*connections.values())
        await asyncio.gather(*(writer.wait_closed() for writer in connections), return_exceptions=True)
