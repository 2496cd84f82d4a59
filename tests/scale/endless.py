"""One endless host among many: how much of the fetches and of the frontier it gets until the others are done."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer_fakeweb import graph
from tests.scale.emptied import Emptied
from tests.scale.trap import HOST, Trap
from tests.servers.crawling import command
from tests.servers.valkey import Server, standalone

FETCHES = 0.01
MEMORY = 0.05
"""The largest shares that the endless host may have."""
_STOP_SECONDS = 60.0
_OPTIONS = {"list-compress-depth": "1"}
"""Of the server, as the one that Gossamer runs itself has it and the others are advised to."""


@dataclass(frozen=True, slots=True)
class Share:
    """At one moment. Bytes without what an empty server takes."""

    seconds: float
    fetched: int
    """By the others."""
    endless_fetched: int
    memory: int
    endless_memory: int
    endless_queued: int

    @property
    def of_fetches(self) -> float:
        return self.endless_fetched / max(1, self.fetched + self.endless_fetched)

    @property
    def of_memory(self) -> float:
        return self.endless_memory / max(1, self.memory)


@dataclass(slots=True)
class Endless:
    """What came of it."""

    pages: int
    """Of the other hosts, together."""
    shares: list[Share]
    lost: int
    """Pages of the other hosts without a record."""


def endless(
    *,
    hosts: int = 999,
    pages: int = 60,
    links: int = 20,
    rate: str = "",
    max_pending: int | None = None,
    at_most_seconds: float = 1800,
) -> Endless:
    """Crawl them together with everything at its default, until the others are done.

    `pages`: of each of the others; `links`: on each page, of the endless host all new. `rate` and
    `max_pending` (URLs that a domain may queue): other than the default.
    Raises TimeoutError when the others are not done in time.
    """
    spec = WebSpec(hosts=hosts, pages=pages, out_degree=links, page_bytes=4000)
    with (
        tempfile.TemporaryDirectory(prefix="endless-") as name,
        FakeWeb.start(spec) as web,
        Trap(links=links) as trap,
        standalone(options=_OPTIONS) as server,
        Emptied(Path(name, "pages.jsonl")) as output,
    ):
        folder = Path(name)
        seeds = folder / "seeds"
        seeds.write_text("\n".join([trap.url, *web.seeds()]))
        arguments = ["crawl", "--seeds", str(seeds), "--frontier", server.address, "-o", str(output.path)]
        arguments += ["--resolve", "*.test:127.0.0.1", "--quiet", *(["--rate", rate] if rate else [])]
        environment = dict(os.environ)
        if max_pending is not None:
            environment["GOSSAMER_CRAWL__DOMAIN_MAX_PENDING"] = str(max_pending)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command(*arguments), cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment
            )
            try:
                empty = int(server.info("memory")["used_memory_startup"])
                shares = list(_watch(web, trap, server, process, empty, at_most_seconds))
                process.terminate()
                process.wait(_STOP_SECONDS)
            finally:
                process.kill()
                process.wait()
        assert process.returncode in (0, 130), (folder / "log").read_text()
    whole = graph(web.site)
    return Endless(pages=len(whole), shares=shares, lost=len(whole - output.urls))


def _watch(
    web: FakeWeb, trap: Trap, server: Server, process: "subprocess.Popen[bytes]", empty: int, at_most_seconds: float
) -> Iterator[Share]:
    """A share a second until the others are done."""
    robots = web.spec.hosts
    wanted = web.spec.hosts * web.spec.pages
    began = time.monotonic()
    done = False
    while not done:
        if process.poll() is not None:
            raise RuntimeError(f"the crawl ended with {process.returncode}")
        seconds = time.monotonic() - began
        if seconds > at_most_seconds:
            raise TimeoutError(f"the others are not done after {at_most_seconds:g} s")
        fetched = max(0, web.stats().requests - robots)
        done = fetched >= wanted
        memory = int(server.info("memory")["used_memory"]) - empty
        queued, bytes_ = _of_endless(server)
        seen, all_seen, seen_bytes = trap.pages + queued, *_seen(server)
        bytes_ += int(seen_bytes * seen / max(1, all_seen))
        yield Share(seconds, fetched, trap.pages, memory, bytes_, queued)
        time.sleep(1.0)


def _of_endless(server: Server) -> tuple[int, int]:
    """URLs that wait in its queues, and the bytes of all keys that bear its name."""
    queued = size = 0
    for key in _keys(server, f"*{HOST}*"):
        size += server.command("MEMORY", "USAGE", key, "SAMPLES", 0) or 0
        if b":q:" in key.replace(b"}:", b":"):
            queued += server.command("LLEN", key)
    return queued, size


def _seen(server: Server) -> tuple[int, int]:
    """How many URLs the seen-set holds, and its bytes."""
    count = 0
    for key in _keys(server, "*}:c:*"):
        count += int(server.command("HGET", key, "n") or 0)
    return count, sum(server.command("MEMORY", "USAGE", key, "SAMPLES", 0) or 0 for key in _keys(server, "*}:s:*"))


def _keys(server: Server, pattern: str) -> Iterator[bytes]:
    cursor = b"0"
    while True:
        cursor, keys = server.command("SCAN", cursor, "MATCH", pattern, "COUNT", 5000)
        yield from keys
        if cursor == b"0":
            return
