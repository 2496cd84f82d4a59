"""Samples of the frontier's crawls for the history.

A sweep goes through all running crawls, one page at a time, and is followed by a look at those that ran in the sweep
before and do not any more. What has not changed since its last sample is not written. The cost is bounded: a page at
most every `_PAGE_SECONDS`, whatever the number of crawls.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from gossamer.errors import HistoryRefused
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.history.store import HistoryStore
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.info import CrawlInfo
from gossamer.telemetry import logs

log = logging.getLogger("gossamer.services.historian")

_TURN = "sampler"
"""Name of the turn of the process that samples; stored."""
_TURN_SECONDS = 20.0
"""Time after which another process samples, when this one has died. Must exceed the time of a page by far."""
_PAGE = 500
"""Crawls that are sampled at once: about ten calls to the frontier."""
_PAGE_SECONDS = 0.25
"""Time between two pages. 100,000 running crawls are sampled once in a minute."""
_SWEEP_SECONDS = 2.0
"""Time between the beginnings of two sweeps of few crawls."""
_DOMAINS = 20
"""Domains of a crawl that one look finds. It looks at new crawls, and at the others in every `_DOMAIN_SWEEPS`-th
sweep."""
_DOMAIN_SWEEPS = 30
_MAX_REFUSED = 10_000
"""Crawls of which is remembered that their refusal was logged."""


class _Sampled(NamedTuple):
    """Last sample of a running crawl."""

    sweep: int
    counts: tuple[object, ...]
    """Counts of that sample. One with the same counts need not be written again."""


class CrawlSampler:
    """Copies the state of crawls from the frontier to the history. Of several, one works, and the others stand by."""

    def __init__(
        self,
        frontier: ValkeyFrontier,
        history: HistoryStore,
        *,
        owner: str,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`owner`: name of this process. `now`: returns epoch seconds."""
        self._frontier = frontier
        self._history = history
        self._owner = owner
        self._now = now
        self._monotonic = monotonic
        self._running: dict[CrawlId, _Sampled] = {}
        """Crawls that run, as far as this process has seen."""
        self._refused: set[CrawlId] = set()
        """Crawls that the database refuses, and of which that is logged."""
        self._sweep = 0
        """Number of the sweep, from 1. The first one also reads the crawls that have ended."""
        self._is_sweeping = False
        """True: the sweep has begun and not ended. One that an outage interrupted goes on."""
        self._cursor = ""
        self._began_at = 0.0
        self._due_at = float("-inf")
        self._renews_at = float("-inf")
        """Time until which this process has the turn to sample, and need not ask for it."""

    @property
    def pause_seconds(self) -> float:
        """Time until the next page is due."""
        return max(0.0, self._due_at - self._monotonic())

    @property
    def has_turn(self) -> bool:
        """True: this process samples, and others stand by."""
        return self._monotonic() < self._renews_at

    async def sample(self) -> None:
        """Sample one page, if it is due. May be repeated. Raises errors of the frontier, and HistoryUnavailable."""
        if self.pause_seconds:
            return
        self._due_at = self._monotonic() + _PAGE_SECONDS
        if not await self._has_turn():
            # Another process samples. When it does not any more, this one begins anew.
            self._sweep, self._is_sweeping, self._cursor, self._running = 0, False, "", {}
            self._due_at = self._monotonic() + _TURN_SECONDS / 4
            return
        if not self._is_sweeping:
            self._is_sweeping = True
            self._sweep += 1
            self._began_at = self._monotonic()
        state = CrawlState.RUNNING if self._sweep > 1 else None
        infos, cursor = await self._frontier.list_crawls(state=state, cursor=self._cursor, limit=_PAGE)
        await self.record(infos)
        self._cursor = cursor
        if not cursor:
            await self._end_sweep()
            self._is_sweeping = False
            self._due_at = max(self._due_at, self._began_at + _SWEEP_SECONDS)

    async def _has_turn(self) -> bool:
        """Return whether this process samples. It renews its turn when half of it is over, so that an idle service
        seldom writes."""
        now = self._monotonic()
        if now >= self._renews_at:
            is_mine = await self._history.take_turn(_TURN, owner=self._owner, seconds=_TURN_SECONDS)
            self._renews_at = now + _TURN_SECONDS / 2 if is_mine else float("-inf")
        return now < self._renews_at

    async def record(self, infos: Sequence[CrawlInfo]) -> None:
        """Write those of these crawls that have changed, and their domains."""
        changed = {info.crawl: info for info in infos if self._has_changed(info)}
        is_due = self._sweep % _DOMAIN_SWEEPS == 0
        looked_at = [crawl for crawl in changed if is_due or crawl not in self._running]
        found = await self._frontier.first_domains(looked_at, limit=_DOMAINS) if looked_at else []
        domains = {
            crawl: [domain.domain for domain in waiting] for crawl, waiting in zip(looked_at, found, strict=True)
        }
        await self._write(list(changed.values()), domains)
        for info in infos:
            if info.state is CrawlState.RUNNING:
                self._running[info.crawl] = _Sampled(self._sweep, _counts(info))
            else:
                self._running.pop(info.crawl, None)

    async def _write(self, infos: Sequence[CrawlInfo], domains: Mapping[CrawlId, Sequence[str]]) -> None:
        """Write crawls; where the database refuses them, each half by itself, and so on. One that is refused alone is
        left out."""
        try:
            await self._history.record_crawls(infos, now=self._now(), domains=domains)
        except HistoryRefused as error:
            if len(infos) == 1:
                self._note_refused(infos[0].crawl, error)
                return
            for part in (infos[: len(infos) // 2], infos[len(infos) // 2 :]):
                theirs = {info.crawl: domains[info.crawl] for info in part if info.crawl in domains}
                await self._write(part, theirs)

    def _note_refused(self, crawl: CrawlId, error: HistoryRefused) -> None:
        if crawl not in self._refused:
            if len(self._refused) >= _MAX_REFUSED:
                self._refused.clear()
            self._refused.add(crawl)
            log.error("%s the crawl %s, which it does not remember: %s", logs.HISTORY_REFUSED, crawl, error)

    def _has_changed(self, info: CrawlInfo) -> bool:
        seen = self._running.get(info.crawl)
        return seen is None or seen.counts != _counts(info)

    async def _end_sweep(self) -> None:
        """Look at the crawls that this sweep did not find; after the first one, also at those that other processes saw
        running."""
        if self._sweep == 1:
            after = 0
            while True:
                page, after = await self._history.running_crawls(after=after, limit=_PAGE)
                await self._look_again([crawl for crawl in page if crawl not in self._running])
                if not after:
                    break
        gone = [crawl for crawl, seen in self._running.items() if seen.sweep != self._sweep]
        for first in range(0, len(gone), _PAGE):
            await self._look_again(gone[first : first + _PAGE])

    async def _look_again(self, crawls: Sequence[CrawlId]) -> None:
        """Record how these crawls ended, or that the frontier does not know them any more."""
        found = await self._frontier.crawl_infos(crawls) if crawls else []
        await self.record([info for info in found if info is not None])
        lost = [crawl for crawl, info in zip(crawls, found, strict=True) if info is None]
        await self._history.record_lost(lost, now=self._now())
        for crawl in lost:
            self._running.pop(crawl, None)

    async def close(self) -> None:
        """Let another process sample."""
        await self._history.give_back_turn(_TURN, owner=self._owner)


def _counts(info: CrawlInfo) -> tuple[object, ...]:
    total = info.total()
    return (info.run, info.started, info.state, total.added, total.done, total.queued, total.later, total.leased)
