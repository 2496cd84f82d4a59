"""Entries of the audit for requests that came by the bus, which carries no name of their senders.

A stop, a change of a policy and a request of a plug-in have an entry each. Of the requests that a crawl gets, the first
ones of a minute have: programs send thousands a second, and the entry is to say where a crawl comes from.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from gossamer.control.admission import AdmittedRequest
from gossamer.control.changes import made_change, refusal_in, requested_change, submission
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId
from gossamer.storage.audit import AuditedChange, AuditOutcome, AuditTrail

_SECONDS: Final = 60.0
"""Time for which further requests of a crawl have no entry."""
_CRAWLS: Final = 10_000
"""Crawls whose last entry is remembered. More need more memory; of others there are more entries."""
_DONE: Final = AuditOutcome(200)


class BusEntry(NamedTuple):
    """An entry that has begun."""

    number: int
    change: AuditedChange


class BusAudit:
    """Makes the entries of one service process."""

    def __init__(
        self,
        trail: AuditTrail,
        frontier: ValkeyFrontier,
        *,
        actor: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`actor`: kind of the bus: `kafka` or `streams`."""
        self._trail = trail
        self._frontier = frontier
        self._actor = actor
        self._monotonic = monotonic
        self._last: dict[CrawlId, float] = {}
        self._open: dict[CrawlId, BusEntry] = {}
        """Entries of submissions without an outcome. A batch that is repeated goes on with them."""

    async def begin(self, topic: str, kind: str, request: Any) -> BusEntry | None:
        """Begin the entry of a request of any kind but `crawl`. None: it changes nothing."""
        facts = await requested_change(self._frontier, kind, request)
        return None if facts is None else await self._begin(facts.by(self._actor, topic))

    async def end(self, entry: BusEntry, request: Any, answers: Sequence[dict[str, Any]], fault: str) -> None:
        """Complete an entry. `fault`: why the request was rejected; empty: it was not."""
        reason = fault or refusal_in(answers)
        found = {} if fault else await made_change(self._frontier, request)
        change = msgspec.structs.replace(entry.change, details={**entry.change.details, **found})
        await self._trail.end(entry.number, change, AuditOutcome(400, reason) if reason else _DONE)

    async def begin_submissions(self, requests: Iterable[tuple[str, AdmittedRequest]]) -> None:
        """Begin the entries of crawl requests, each with its topic."""
        now = self._monotonic()
        if len(self._last) > _CRAWLS:
            self._last.clear()
        by_crawl: dict[CrawlId, list[tuple[str, AdmittedRequest]]] = {}
        for topic, request in requests:
            if self._last.get(request.crawl.id, float("-inf")) + _SECONDS <= now:
                by_crawl.setdefault(request.crawl.id, []).append((topic, request))
        self._last |= dict.fromkeys(by_crawl, now)
        begun = await asyncio.gather(
            *(
                self._begin(submission([request for _, request in of_one]).by(self._actor, of_one[0][0]))
                for of_one in by_crawl.values()
            )
        )
        self._open |= zip(by_crawl, begun, strict=True)

    async def end_submissions(self, refusals: Mapping[CrawlId, str]) -> None:
        """Complete the entries of crawl requests. `refusals`: reasons by crawls that accepted none of them."""
        ended, self._open = self._open, {}
        await asyncio.gather(
            *(
                self._trail.end(*entry, AuditOutcome(400, refusals[crawl]) if crawl in refusals else _DONE)
                for crawl, entry in ended.items()
            )
        )

    async def _begin(self, change: AuditedChange) -> BusEntry:
        return BusEntry(await self._trail.begin(change), change)
