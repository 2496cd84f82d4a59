"""A site without an end: every page leads to so many new ones, ever deeper. It runs in a thread of this process."""

import asyncio
import threading
from types import TracebackType
from typing import Self

HOST = "endless.test"
_START_SECONDS = 60.0


class Trap:
    """Serves `http://endless.test:<port>/` on loopback. A context manager."""

    def __init__(self, *, links: int = 20) -> None:
        """`links`: new ones on each page."""
        self.port = 0
        self.pages = 0
        """Requests so far, robots.txt not counted; there is none."""
        self._links = links
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    @property
    def url(self) -> str:
        """Its first page."""
        return f"http://{HOST}:{self.port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_START_SECONDS), "the trap does not listen"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request a connection: nothing here is to be fast."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            path = head.split(b" ", 2)[1].decode()
            if path == "/robots.txt":
                status, body = "404 Not Found", b""
            else:
                self.pages += 1
                status, body = "200 OK", self._page(path)
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n"
                "Connection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _page(self, path: str) -> bytes:
        below = path.rstrip("/")
        return "".join(f'<p><a href="{below}/{number}">{number}</a></p>' for number in range(self._links)).encode()
