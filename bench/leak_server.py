"""The server of the leak test: pages, and a failure of each kind, by path. `python -m bench.leak_server FOLDER`."""

import asyncio
import gzip
import ssl
import sys
from pathlib import Path

import uvloop

PAGE = b"<p>The thread on which small spiders travel.</p>\n" * 240
_GZIPPED = gzip.compress(PAGE)
_OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
_SIZED = _OK + b"Content-Length: %d\r\n" % len(PAGE)

ANSWERS: dict[bytes, tuple[bytes, bool]] = {
    b"/page": (_SIZED + b"\r\n" + PAGE, True),
    b"/gzip": (_OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(_GZIPPED) + _GZIPPED, True),
    b"/chunked": (_OK + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(PAGE) + PAGE + b"\r\n0\r\n\r\n", True),
    b"/close": (_SIZED + b"Connection: close\r\n\r\n" + PAGE, False),
    b"/old": (b"HTTP/1.0 200 OK\r\n\r\n" + PAGE, False),
    b"/sloppy": ((_SIZED + b"\r\n").replace(b"\r\n", b"\n") + PAGE, True),
    b"/cut": (_SIZED + b"\r\n" + PAGE[:500], False),
    b"/hang-up": (b"", False),
    b"/banner": (b"SSH-2.0-OpenSSH_9.2\r\n", True),
    b"/broken": (_OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", True),
    b"/unasked": (_SIZED + b"\r\n" + PAGE + _SIZED + b"\r\n" + PAGE, True),
    b"/silent": (b"", True),
}
"""By path: what is sent, and whether the connection stays open."""


class Server(asyncio.Protocol):
    """One connection. Requests have no body and are never pipelined."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        if not self._received.endswith(b"\r\n\r\n"):
            return
        path = self._received.split(b" ", 2)[1]
        self._received = b""
        answer, stays = ANSWERS[path]
        if answer:
            self._transport.write(answer)
        if not stays:
            self._transport.close()


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(next(folder.glob("*.crt")), folder / "key.pem")
    return context


async def _main(context: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    plain = await loop.create_server(Server, "127.0.0.1", 0, backlog=4096)
    secure = await loop.create_server(Server, "127.0.0.1", 0, backlog=4096, ssl=context)
    print(plain.sockets[0].getsockname()[1], secure.sockets[0].getsockname()[1], flush=True)
    # Until the process that started this goes away, however that happens.
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_main(_context(Path(sys.argv[1]))))
