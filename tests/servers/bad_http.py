"""A server that speaks HTTP badly: it reads a request and then follows a script, step by step."""

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Drip:
    """Send `data` byte by byte, `seconds` apart; 0 as fast as it goes, each in a packet of its own."""

    data: bytes
    seconds: float = 0.0


@dataclass(frozen=True)
class Endless:
    """Send `data` again and again until the client has enough."""

    data: bytes


class Stall:
    """Send nothing until the client goes away."""


class Reset:
    """End the connection with a reset instead of a farewell."""


class NextRequest:
    """Read another request before going on."""


Step = bytes | Drip | Endless | Stall | Reset | NextRequest


class BadServer:
    """Answers each connection's first request by the script of its path; a script's end closes the connection."""

    def __init__(self, scripts: Mapping[str, list[Step]]) -> None:
        self.scripts = dict(scripts)
        self.port = 0
        self.connections = 0
        """Accepted so far."""
        self.requests: list[bytes] = []
        """Heads received, in order."""
        self.requested = asyncio.Event()
        """Set when the first has arrived."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                path = await self._read(reader)
                for step in self.scripts[path]:
                    await self._follow(step, reader, writer)
                writer.close()
                await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def _read(self, reader: asyncio.StreamReader) -> str:
        head = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(head)
        self.requested.set()
        return head.split(b" ", 2)[1].decode()

    async def _follow(self, step: Step, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match step:
            case bytes():
                writer.write(step)
                await writer.drain()
            case Drip(data, seconds):
                for value in data:
                    writer.write(bytes([value]))
                    await writer.drain()
                    await asyncio.sleep(seconds)
            case Endless(data):
                while not reader.at_eof() and not writer.is_closing():
                    writer.write(data)
                    await writer.drain()
                    await asyncio.sleep(0)
            case Stall():
                await reader.read()
            case NextRequest():
                await self._read(reader)
            case Reset():
                linger = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()


@asynccontextmanager
async def run_bad_server(
    scripts: Mapping[str, list[Step]], *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[BadServer]:
    """Serve `scripts` (by path) on a free port of 127.0.0.1; all connections end with the block."""
    bad = BadServer(scripts)
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(bad.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    bad.port = server.sockets[0].getsockname()[1]
    try:
        yield bad
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # transports tell their protocols in the loop's next round
