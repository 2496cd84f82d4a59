"""A lease while Scrapy works on it, and the knowledge of which one the running code belongs to."""

from contextvars import ContextVar
from dataclasses import dataclass, field

from scrapy import Request

from gossamer.model.crawl import Run
from gossamer.model.outcome import Outcome
from gossamer.model.request import Batch, Lease
from gossamer.scrapy.entries import Entry

Part = tuple[str, int, int]
"""Of what is remembered as seen: a crawl's run, and its generation. What one run has seen, the next may not have."""


def part_of(run: Run) -> Part:
    """Where the fingerprints of this run are remembered."""
    return run.crawl.id.token, run.number, run.generation


@dataclass(slots=True, eq=False)
class Live:
    """From the moment Scrapy gets its request until it settles."""

    lease: Lease
    request: Request
    outcome: Outcome = Outcome.FETCHED
    reason: str = ""
    moving: bool = False
    """A middleware has put another request in its place, which is being scheduled."""
    successor: tuple[Request, Entry] | None = None
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

    def add(self, entry: Entry, *, unfiltered: bool) -> None:
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


def append(batch: Batch, entry: Entry) -> None:
    """One more in a batch of its kind."""
    batch.urls.append(entry.url)
    batch.fingerprints.append(entry.fingerprint)
    assert isinstance(batch.payloads, list)
    batch.payloads.append(entry.payload)


CURRENT: ContextVar[Live | None] = ContextVar("gossamer_lease", default=None)
"""Whose answer the running code is handling. Tasks inherit it: callbacks, pipelines and what they await."""
