"""One run: a crawl of a fake web writes its items to a store; the store's server and the crawl are killed in turn.

Nothing slows the crawl but itself, the store, and the kills. Fixed: a kill comes at a number of pages, not at a time,
so that it hits the crawl on a fast machine, too.
"""

import contextlib
import random
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gossamer.fakeweb import FakeWeb, WebSpec
from gossamer_fakeweb import graph
from tests.servers.crawling import command, resolving
from tests.servers.stores import StoreServer
from tests.stores.judge import Verdict, judge_items

ITEMS_PER_PAGE = 20
_SPIDER = f"""
from gossamer import Spider

class Offers(Spider):
    def parse(self, page):
        for number in range({ITEMS_PER_PAGE}):
            yield {{
                "url": f"{{page.url}}#{{number}}",
                "title": f"Bright flat number {{number}} near the river, two bedrooms",
                "price": 300.5 + number,
                "description": "A quiet street, five minutes from the station. " * 5,
                "images": ["https://estate.example/images/i01.jpg"],
            }}
        for link in page.links:
            yield page.follow(link.url)
"""
_WAIT_SECONDS = 600.0
"""Time in which a crawl must get from one kill to the next one, or to its end, on a slow machine."""


@dataclass(frozen=True)
class Kill:
    """A kill of the store's server or of the crawl."""

    what: str
    """server or process."""
    pages: int
    """Pages that the web has served by then."""
    away: float
    """Seconds until the server is started again."""


@dataclass(frozen=True)
class Plan:
    """What happens in a run: a pure function of its seed and size."""

    seed: int
    pages: int
    kills: tuple[Kill, ...]


@dataclass
class Outcome:
    """A run that came to its end."""

    store: str
    plan: Plan
    verdict: Verdict
    seconds: float
    """Time of the crawl, with its starts, and without those of the server."""


def make_plan(seed: int, items: int, *, rounds: int = 2) -> Plan:
    """Return the plan of a seed. `items` is rounded up to whole pages; `rounds`: kills of the server, and of the
    process."""
    chance = random.Random(seed)
    pages = max(20, -(-items // ITEMS_PER_PAGE))
    kinds = ("server", "process") * rounds
    step = 0.9 / len(kinds)
    shares = [0.05 + step * (number + chance.uniform(0.1, 0.9)) for number in range(len(kinds))]
    return Plan(
        seed,
        pages,
        tuple(
            Kill(what, round(share * pages), chance.choice((0.0, 0.5, 2.0)))
            for what, share in zip(kinds, shares, strict=True)
        ),
    )


def run_plan(plan: Plan, server: StoreServer, folder: Path) -> Outcome:
    """Run a plan in a folder of its own, on a running server. Raises RuntimeError if the crawl ends or fails before
    its time."""
    folder.mkdir(parents=True)
    (folder / "offers.py").write_text(_SPIDER)
    address = server.address()
    with FakeWeb.start(WebSpec(hosts=1, pages=plan.pages, page_bytes=2000)) as web:
        arguments = [
            "crawl", *web.seeds(), *resolving(web.resolve_overrides()), "--rate", "1000000/1",
            "--domain-concurrency", "16", "--crawl-id", "stores", "--spider", "offers.py", "-o", address, "--items",
        ]  # fmt: skip
        crawl = _Crawl(command(*arguments), folder)
        began, away = time.monotonic(), 0.0
        try:
            for kill in plan.kills:
                away += _carry_out(kill, crawl, server, lambda: web.stats().requests)
            crawl.wait_for_end()
        finally:
            crawl.kill()
        seconds = time.monotonic() - began - away
        expected = {f"{url}#{number}" for url in graph(web.site) for number in range(ITEMS_PER_PAGE)}
    refused = sum(path.read_bytes().count(b"\n") for path in (folder / ".gossamer/refused").glob("*.jsonl"))
    return Outcome(server.kind, plan, judge_items(expected, server.column(address, "items", "url"), refused), seconds)


class _Crawl:
    """The process of a crawl, which is started again after a kill."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._arguments = arguments
        self._folder = folder
        self._log: IO[bytes] = (folder / "log").open("ab")
        self._process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            self._arguments, cwd=self._folder, stdout=self._log, stderr=self._log, start_new_session=True
        )

    def require(self) -> None:
        """Raise RuntimeError if the crawl has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the crawl ended too early: {(self._folder / 'log').read_text()[-2000:]}")

    def restart(self) -> None:
        """Kill the crawl, and start it again with the same command."""
        self.require()
        self._process.kill()
        self._process.wait()
        self._process = self._start()

    def wait_for_end(self) -> None:
        """Return when the crawl has finished. Raises RuntimeError if it fails."""
        if self._process.wait(_WAIT_SECONDS):
            raise RuntimeError(f"the crawl failed: {(self._folder / 'log').read_text()[-2000:]}")

    def kill(self) -> None:
        """Kill the crawl. May be repeated."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()
        self._log.close()


def _carry_out(kill: Kill, crawl: _Crawl, server: StoreServer, served: Callable[[], int]) -> float:
    """Wait for the pages before a kill, and kill. Return the seconds for which the server was away."""
    last = time.monotonic() + _WAIT_SECONDS
    while served() < kill.pages:
        crawl.require()
        if time.monotonic() > last:
            raise RuntimeError(f"{served():,} pages instead of {kill.pages:,}")
        time.sleep(0.01)
    if kill.what == "process":
        crawl.restart()
        return 0.0
    crawl.require()
    began = time.monotonic()
    server.kill()
    time.sleep(kill.away)
    server.start()
    return time.monotonic() - began
