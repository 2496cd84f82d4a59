"""A lease while Scrapy works on it, and the knowledge of which one the running code belongs to."""

import logging
import sys
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.settings import SETTINGS_PRIORITIES
from scrapy.utils.reactor import is_asyncio_reactor_installed

from gossamer.errors import GossamerError
from gossamer.model.crawl import Run
from gossamer.model.request import Batch, Lease, Outcome
from gossamer.scrapy.entries import FrontierEntry

Part = tuple[str, int, int]
"""Of what is remembered as seen: a crawl's run, and its generation. What one run has seen, the next may not have."""


def part_of(run: Run) -> Part:
    """Where the fingerprints of this run are remembered."""
    return run.crawl.id.token, run.number, run.generation


@dataclass(slots=True, eq=False)
class LiveRequests:
    """From the moment Scrapy gets its request until it settles."""

    lease: Lease
    request: Request
    outcome: Outcome = Outcome.FETCHED
    reason: str = ""
    moving: bool = False
    """A middleware has put another request in its place, which is being scheduled."""
    successor: tuple[Request, FrontierEntry] | None = None
    """That request."""
    known: int = 0
    """Children that were known to be seen."""
    local: int = 0
    """Children that could not be stored and are under way in this process; it waits for them."""
    drops: dict[str, int] = field(default_factory=dict)
    """Children that go nowhere, by reason."""
    delay_seconds: float = 0.0
    """Of a retry: not before so long from now."""
    answer: object = None
    """The response or the failure that it ended with, where somebody wants to tell of it."""
    answered: bool = False
    """Its own answer has been handled."""
    over: bool = False
    batches: dict[tuple[str, str, int, int, bool], Batch] = field(default_factory=dict)

    start: float = field(init=False)
    """When its request is to start; monotonic."""
    part: Part = field(init=False)

    def __post_init__(self) -> None:
        self.start = self.lease.start
        self.part = part_of(self.lease.run)

    def add(self, entry: FrontierEntry, *, unfiltered: bool) -> None:
        """A child, to enter the frontier before this settles."""
        key = (entry.spider, entry.domain, entry.priority, entry.depth, unfiltered)
        batch = self.batches.get(key)
        if batch is None:
            batch = self.batches[key] = Batch(*key[:4], payloads=[], unfiltered=unfiltered)
        append(batch, entry)

    def fail(self, reason: str) -> None:
        """The first reason counts."""
        if self.outcome is Outcome.FETCHED:
            self.outcome, self.reason = Outcome.FAILED, reason


def append(batch: Batch, entry: FrontierEntry) -> None:
    """One more in a batch of its kind."""
    batch.urls.append(entry.url)
    batch.fingerprints.append(entry.fingerprint)
    assert isinstance(batch.payloads, list)
    batch.payloads.append(entry.payload)


CURRENT: ContextVar[LiveRequests | None] = ContextVar("gossamer_lease", default=None)
"""Whose answer the running code is handling. Tasks inherit it: callbacks, pipelines and what they await."""


log = logging.getLogger(__name__)


def runs_alone(crawler: Crawler) -> bool:
    """Whether it is a person's look at one page, never part of a crawl: `scrapy shell`, `fetch`, `parse`, `check`.

    Those commands put a `start` of their own into the spider; the shell, which needs none, does without dedupe."""
    start = getattr(crawler.spidercls, "start", None)
    if str(getattr(start, "__module__", "")).startswith("scrapy.commands."):
        return True
    return crawler.settings.getpriority("DUPEFILTER_CLASS") == SETTINGS_PRIORITIES["command"]


def refuse(error: GossamerError) -> NoReturn:
    """Say in one line what is wrong, and end: the `scrapy` command with exit code 2, a program by the error itself."""
    log.critical("%s", error)
    main = getattr(sys.modules["__main__"], "__spec__", None)
    command = Path(sys.argv[0]).name == "scrapy" or (main is not None and main.name == "scrapy.__main__")
    # Other reactors keep SystemExit to themselves, and the command would end as if all were well.
    if command and is_asyncio_reactor_installed():
        raise SystemExit(2)
    raise error
