"""Runs a fake web in this event loop.

Nothing is served before the extra sites are open, and each connection has ended before the log is closed.
"""

import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from gossamer.errors import FakeWebFailed
from gossamer.fakeweb.answer import Mounts
from gossamer.fakeweb.authority import Authority
from gossamer.fakeweb.connection import Connection
from gossamer.fakeweb.server import Server
from gossamer.fakeweb.site import ADDRESS
from gossamer.fakeweb.spec import WebSpec
from gossamer.net.listening import listen_fault

_BACKLOG = 4096
"""Connections that the kernel may hold until they are accepted. A small number refuses bursts of clients."""


@asynccontextmanager
async def serve(
    spec: WebSpec,
    *,
    port: int = 0,
    tls: bool = False,
    mounts: Mounts | None = None,
    log_file: Path | None = None,
) -> AsyncIterator[Server]:
    """Run a fake web in this event loop, on 127.0.0.1, until the block ends; then every connection is reset.

    `port` 0: any free one. `mounts`: handmade answers. `log_file`: gets every request as a JSON line. Raises
    `FakeWebFailed` if the port or the file cannot be opened, or the package for certificates is missing.
    """
    try:
        listening = socket.create_server((ADDRESS, port), backlog=_BACKLOG)
    except OSError as error:
        raise FakeWebFailed(listen_fault(f"{ADDRESS}:{port}", error, option="--port")) from error
    with listening, tempfile.TemporaryDirectory(prefix="fakeweb-") as folder:
        bound = int(listening.getsockname()[1])
        try:
            web = Server(spec, scheme="https" if tls else "http", port=bound, mounts=mounts, log_file=log_file)
        except OSError as error:
            raise FakeWebFailed(f"the log {log_file} cannot be written: {error.strerror}") from error
        context = None
        if tls:
            authority = Authority(Path(folder), serves=web.serves)
            web.ca_path = authority.ca_path
            context = authority.context
        for site in web.extra_sites:
            await site.open()
        server = await web.loop.create_server(lambda: _accept(web), sock=listening, ssl=context, backlog=_BACKLOG)
        flushing = web.loop.create_task(web.keep_flushing())
        try:
            yield web
        finally:
            flushing.cancel()
            for site in web.extra_sites:
                site.close()
            server.close()
            web.closing = True  # for connections still in their handshake
            for connection in list(web.connections):
                connection.reset()
            await web.idle.wait()
            web.journal.close()


def _accept(web: Server) -> Connection:
    """Return the protocol of a new connection."""
    web.accepted += 1
    return Connection(web, web.accepted)
