"""The fake web as a server: all hosts on one address and port, distinguished by the Host header.

Fixed: `ExtraSite` and the attributes of `Server` without an underscore, which the package gossamer-fakeweb, the
connections and tests use; methods may be added. Safe to change: the two numbers below, and how `serve` is built, as
long as nothing is served before the extra sites are open, and each connection has ended before the log is closed.
"""

import asyncio
import errno
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from gossamer.errors import BadInput, FakeWebFailed
from gossamer.fakeweb import control
from gossamer.fakeweb.answer import Answer, Mounts
from gossamer.fakeweb.answers import Answers
from gossamer.fakeweb.authority import Authority
from gossamer.fakeweb.connection import Connection
from gossamer.fakeweb.control import HostilePlace, Stats
from gossamer.fakeweb.journal import Journal, Record
from gossamer.fakeweb.site import ADDRESS, Web
from gossamer.fakeweb.spec import WebSpec

_BACKLOG = 4096
"""Connections that the kernel may hold until they are accepted. May be changed; a small one refuses bursts of
clients."""
_FLUSH_SECONDS = 1.0
"""Age at which lines of the log reach its file. May be changed freely."""


class ExtraSite(Protocol):
    """A site with answers of its own beside the generated hosts. The package gossamer-fakeweb has two."""

    wants_bodies: bool
    """True if `answer` needs the bodies of requests."""

    def serves(self, host: str) -> bool:
        """Return whether the site answers for this lower-case host name."""
        ...

    def answer(self, host: str, target: str, *, method: str, body: bytes, cookie: str) -> Answer:
        """Return the answer to one request. `cookie` is the Cookie header, empty without one."""
        ...

    def places(self) -> list[HostilePlace]:
        """Return where its hostile hosts begin; empty where it has none. Large bodies are made by then."""
        ...

    def reset(self) -> None:
        """Forget what clients did."""
        ...

    async def open(self) -> None:
        """Open the ports of its own, if it has any."""
        ...

    def close(self) -> None:
        """Close the ports of its own."""
        ...


def _extra_sites(spec: WebSpec, port: int) -> list[ExtraSite]:
    """Return the sites that `spec` asks for. Raises `BadInput` where their package is not installed."""
    if not (spec.estate or spec.hostile):
        return []
    try:
        from gossamer_fakeweb.sites import extra_sites
    except ImportError:
        raise BadInput(
            "--estate and --hostile need the package gossamer-fakeweb: in a checkout, `pip install ./fakeweb`"
        ) from None
    return extra_sites(spec, port)


class Server(Web):
    """A fake web that runs in this event loop. Made by `serve`.

    A mounted page is a handmade answer; it replaces what the web would generate at its address.
    """

    def __init__(self, spec: WebSpec, *, scheme: str, port: int, mounts: Mounts | None, log_file: Path | None) -> None:
        super().__init__(spec, scheme=scheme, port=port)
        self.loop = asyncio.get_running_loop()
        self.answers = Answers(self.site, mounts)
        self.extra_sites = _extra_sites(spec, port)
        self.journal = Journal(base=self.site.base("{host}"), file=log_file)
        self.connections: set[Connection] = set()
        self.idle = asyncio.Event()
        """Set while no connection is open."""
        self.idle.set()
        self.closing = False
        """True: connections are reset instead of served."""
        self.ca_path: Path | None = None
        """The certificate (PEM) that clients must trust; None without TLS."""
        self._accepted = 0

    def serves(self, host: str) -> bool:
        """Return whether this host name is answered, the control host included."""
        known = host in (control.HOST, "localhost") or self.answers.serves(host)
        return known or self.extra_site_of(host) is not None

    def hostile_places(self) -> list[HostilePlace]:
        """Return where each hostile host begins; empty where the web has none. Their large bodies are made by then."""
        return [place for site in self.extra_sites for place in site.places()]

    def extra_site_of(self, host: str) -> ExtraSite | None:
        """Return the extra site that answers for this lower-case host name; None: generated and mounted pages do."""
        if self.answers.serves(host):
            return None
        return next((site for site in self.extra_sites if site.serves(host)), None)

    def accept(self) -> Connection:
        """Return the protocol of a new connection."""
        self._accepted += 1
        return Connection(self, self._accepted)

    def log(self) -> list[Record]:
        """Return all requests since the start or the last reset. Raises `FakeWebFailed` if there were too many to
        log."""
        if self.journal.missed:
            raise FakeWebFailed(f"the log had no room for {self.journal.missed:,} requests")
        return list(self.journal.records())

    def stats(self) -> Stats:
        """Return the counters."""
        return Stats(
            requests=len(self.journal) + self.journal.missed,
            missed=self.journal.missed,
            connections=self._accepted,
            open_connections=len(self.connections),
            cpu_seconds=time.process_time(),
        )

    def mount(self, host: str, path: str, answers: Answer | Sequence[Answer]) -> None:
        """Serve these answers at this address from now on, instead of generated ones (see `Answers.mount`)."""
        self.answers.mount(host, path, answers)

    def resolve_overrides(self) -> list[str]:
        """Return `host:address` for each host, mounted ones included."""
        return super().resolve_overrides() + [f"{host}:{ADDRESS}" for host in self.answers.mounted_hosts()]

    def reset(self) -> None:
        """Forget the log; pages that fail once fail again."""
        self.journal.clear()
        self.answers.reset()
        for site in self.extra_sites:
            site.reset()
        self._accepted = 0

    async def keep_flushing(self) -> None:
        """Hand the log's lines to the file system every second, so that a reader need not wait for the end."""
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            self.journal.flush()


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
        # Not `strerror`: create_server repeats the address in it.
        reason = os.strerror(error.errno) if error.errno else str(error)
        other = "; --port gives another" if error.errno == errno.EADDRINUSE else ""
        raise FakeWebFailed(f"{ADDRESS}:{port}: {reason}{other}") from error
    with listening, tempfile.TemporaryDirectory(prefix="fakeweb-") as folder:
        bound = int(listening.getsockname()[1])
        try:
            web = Server(spec, scheme="https" if tls else "http", port=bound, mounts=mounts, log_file=log_file)
        except OSError as error:
            raise FakeWebFailed(f"{log_file}: {error.strerror}") from error
        context = None
        if tls:
            authority = Authority(Path(folder), serves=web.serves)
            web.ca_path = authority.ca_path
            context = authority.context
        for site in web.extra_sites:
            await site.open()
        server = await web.loop.create_server(web.accept, sock=listening, ssl=context, backlog=_BACKLOG)
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
