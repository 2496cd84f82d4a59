"""A small SOCKS5 proxy (RFC 1928, 1929), which can be told to refuse."""

import asyncio
import contextlib
import ipaddress
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Socks5:
    """What it does and what it has seen."""

    user: bytes = b""
    password: bytes = b""
    refuse_with: int = 0
    """The reply to every request, if not 0."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Its own idea of where names are."""
    port: int = 0
    asked: list[tuple[str, int]] = field(default_factory=list)
    """Targets it was asked for, as they were named."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            if await self._greet(reader, writer):
                await self._connect(reader, writer)
            writer.close()
            await writer.wait_closed()

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        wanted = 2 if self.user else 0
        writer.write(bytes([5, wanted if wanted in methods else 0xFF]))
        if wanted not in methods:
            return False
        if wanted == 2:
            _, length = await reader.readexactly(2)
            user = await reader.readexactly(length)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            known = (user, password) == (self.user, self.password)
            writer.write(bytes([1, 0 if known else 1]))
            return known
        return True

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, _, _, kind = await reader.readexactly(4)
        if kind == 3:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        else:
            host = str(ipaddress.ip_address(await reader.readexactly(4 if kind == 1 else 16)))
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append((host, port))
        if self.refuse_with:
            writer.write(bytes([5, self.refuse_with, 0, 1]) + bytes(6))
            return
        far_reader, far_writer = await asyncio.open_connection(self.names.get(host, host), port)
        # Answers with a name as its own address, which is rare and therefore worth a test.
        writer.write(b"\x05\x00\x00\x03\x05proxy\x00\x00")
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            far_writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def run_socks5(proxy: Socks5) -> AsyncIterator[Socks5]:
    """Serve on a free port of 127.0.0.1; all connections end with the block."""
    tasks: set[asyncio.Task[None]] = set()
    writers: set[asyncio.StreamWriter] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        task = asyncio.get_running_loop().create_task(proxy.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        await asyncio.sleep(0)  # transports tell their protocols in the loop's next round
