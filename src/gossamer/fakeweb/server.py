"""The fake web: all hosts on one address and port, distinguished by the Host header."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gossamer.errors import FakeWebFailed
from gossamer.fakeweb import control
from gossamer.fakeweb.answer import Answer, Mounts
from gossamer.fakeweb.answers import Answers
from gossamer.fakeweb.control import HostilePlace, Stats
from gossamer.fakeweb.extra_site import ExtraSite, extra_sites
from gossamer.fakeweb.journal import Journal, Record
from gossamer.fakeweb.site import ADDRESS, Web
from gossamer.fakeweb.spec import WebSpec

_FLUSH_SECONDS = 1.0
"""Age at which lines of the log reach its file."""


class OpenConnection(Protocol):
    """A connection that is open."""

    def reset(self) -> None:
        """Reset it at once."""
        ...


class Server(Web):
    """A fake web that runs in this event loop. Made by `serving.serve`.

    A mounted page is a handmade answer; it replaces what the web would generate at its address.
    """

    def __init__(self, spec: WebSpec, *, scheme: str, port: int, mounts: Mounts | None, log_file: Path | None) -> None:
        super().__init__(spec, scheme=scheme, port=port)
        self.loop = asyncio.get_running_loop()
        self.answers = Answers(self.site, mounts)
        self.extra_sites = extra_sites(spec, port)
        self.journal = Journal(base=self.site.base("{host}"), file=log_file)
        self.connections: set[OpenConnection] = set()
        self.idle = asyncio.Event()
        """Set while no connection is open."""
        self.idle.set()
        self.closing = False
        """True: connections are reset instead of served."""
        self.ca_path: Path | None = None
        """The certificate (PEM) that clients must trust; None without TLS."""
        self.accepted = 0

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
            connections=self.accepted,
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
        self.accepted = 0

    async def keep_flushing(self) -> None:
        """Hand the log's lines to the file system every second, so that a reader need not wait for the end."""
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            self.journal.flush()
