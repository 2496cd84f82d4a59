"""Visits the pages of crawls that are kept up to date when they are due, and publishes their changes (ADR 25).

Each crawl has a page index. The recrawler begins a round there, adds its pages to the frontier (the store of requests
that wait) as a run of the crawl, and ends the round when the run is over. Fixed: the round is in the index before its
pages enter the frontier, and ends in the index after its run. So whichever recrawler comes next finds the round of one
that was killed, and enters its pages again; those that have entered count as duplicates.
"""

import asyncio
import logging
import time
from typing import Final

import msgspec

from gossamer.bus.base import Bus, Topics
from gossamer.errors import BadInput, CrawlRefused
from gossamer.fresh.index import BEFORE_ALL, PageIndex, Round
from gossamer.fresh.rounds import KeptCrawl, RoundPlanner, shortfall_sentence
from gossamer.fresh.store import IndexStore, end_visits, kept_crawl
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlState
from gossamer.model.info import CrawlInfo
from gossamer.services.subscriber import HubSubscriber
from gossamer.telemetry import logs

log = logging.getLogger("gossamer.services.recrawler")

_LOOK_SECONDS: Final = 2.0
"""Interval at which the recrawler looks for new indexes."""
_OPEN_SECONDS: Final = 300.0
"""Time after which an index of a crawl that is not kept up to date is opened again, if no change of it was noticed."""
_TURN_SECONDS: Final = 5.0
"""Time for which one recrawler works on a crawl after it has last done so. Should exceed the time between two steps, or
several do the same work."""
_HUBS_AT_ONCE: Final = 20
"""Subscriptions of a crawl whose hubs are asked in one step."""
_HUBS_SECONDS: Final = 5.0
"""Interval at which the recrawler looks for hubs of a crawl that are to be asked."""
_CONNECTIONS: Final = 20
"""Indexes up to which their connections stay open between two steps."""
_PAGES_AT_ONCE: Final = 1000
"""Pages that are read from an index and added to the frontier at a time."""
_CHANGES_AT_ONCE: Final = 500
_PUBLISHED: Final = "published"
"""Fact of an index: cursor of the last change that was published."""


class _KeptIndex:
    """An index that the recrawler has open."""

    def __init__(self, index: PageIndex, kept: KeptCrawl) -> None:
        assert kept.terms.recrawl is not None
        self.index = index
        self.crawl = kept.crawl.id
        self.planner = RoundPlanner(index, kept.terms.recrawl, is_endless=True)
        self.hubs_at = 0.0
        """When hubs are looked for the next time, on the monotonic clock."""
        self.told: set[str] = set()
        """Domains about whose budget a message was logged."""
        self.entered = 0
        """Number of the round all of whose pages this process has added to the frontier."""

    def kept(self) -> KeptCrawl | None:
        """Return the crawl, with its latest options. None: it is not kept up to date any more."""
        kept = kept_crawl(self.index)
        if kept is not None and kept.terms.recrawl is not None:
            self.planner.follow(kept.terms.recrawl)
        return kept


class Recrawler:
    """Implements Role. Of several processes, one at a time works on a crawl."""

    name = "recrawler"
    pause_seconds = 1.0

    def __init__(
        self,
        frontier: ValkeyFrontier,
        bus: Bus,
        topics: Topics,
        store: IndexStore,
        *,
        secret: int,
        owner: str,
        subscriber: HubSubscriber | None = None,
    ) -> None:
        """`secret`: the frontier's key for fingerprints. `owner`: name of this process. `subscriber`: asks the hubs of
        feeds, and is closed with this object; None: there are no subscriptions."""
        self._frontier = frontier
        self._bus = bus
        self._topics = topics
        self._store = store
        self._secret = secret
        self._owner = owner
        self._subscriber = subscriber
        self._indexes: dict[str, _KeptIndex] = {}
        self._looked = -_LOOK_SECONDS
        self._others: dict[str, tuple[object, float]] = {}
        """Indexes that cannot be used, or of crawls that are not kept up to date, by name: their version, and when they
        are opened again even if it is still the same."""

    async def run_once(self) -> bool:
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._looked = time.monotonic()
            await asyncio.to_thread(self._look)
        more = False
        for name, known in list(self._indexes.items()):
            kept = await asyncio.to_thread(known.kept)
            if kept is None:
                while await self._publish(known):
                    pass
                self._indexes.pop(name)
                await asyncio.to_thread(known.index.close)
            elif await asyncio.to_thread(known.index.take_turn, self._owner, now=time.time(), seconds=_TURN_SECONDS):
                await self._visit(known, kept)
                more = await self._publish(known) or more
                if self._subscriber is not None and time.monotonic() >= known.hubs_at:
                    known.hubs_at = time.monotonic() + _HUBS_SECONDS
                    due = await asyncio.to_thread(known.index.subscriptions.take_due, time.time(), _HUBS_AT_ONCE)
                    self._subscriber.offer(name, due)
            if len(self._indexes) > _CONNECTIONS:
                await asyncio.to_thread(known.index.close)
        return more

    async def close(self) -> None:
        if self._subscriber is not None:
            await self._subscriber.close()
        indexes, self._indexes = self._indexes, {}
        for known in indexes.values():
            await asyncio.to_thread(known.index.close)

    def _look(self) -> None:
        """Open the indexes of crawls that are kept up to date. Those of other crawls, and those that cannot be used,
        are opened once, and when they have changed."""
        versions, now = self._store.versions(), time.monotonic()
        opened = []
        for name, version in versions.items():
            known, until = self._others.get(name, (None, 0.0))
            if name in self._indexes or (known == version and now < until):
                continue
            try:
                index = self._store.open(name)
            except BadInput as error:  # the other crawls are visited all the same
                log.warning("%s %s: %s", logs.INDEX_REFUSED, name, error.fault)
                opened.append(name)
                continue
            if (kept := kept_crawl(index)) is not None:
                self._indexes[name] = _KeptIndex(index, kept)
            else:
                index.close()
                opened.append(name)
        if opened:  # to open an index may change its version
            versions = self._store.versions()
        self._others = {name: one for name, one in self._others.items() if name in versions}
        self._others.update((name, (versions[name], now + _OPEN_SECONDS)) for name in opened if name in versions)

    # --- visits -------------------------------------------------------------------------------------------------------

    async def _visit(self, known: _KeptIndex, kept: KeptCrawl) -> None:
        """Go on with the round of a crawl, or begin one if pages are due."""
        info = await self._frontier.crawl_info(kept.crawl.id)
        is_running = info is not None and info.state is CrawlState.RUNNING
        current = await asyncio.to_thread(known.index.open_round)
        if current is not None:
            if not current.run:
                await self._enter(known, kept, current, info)
            elif info is None:
                # The frontier lost a run that was not over, with links of pages that are in the index: all pages are
                # read again for their links.
                log.warning("%s %s", logs.ROUND_LOST, kept.crawl.id)
                restarted = await asyncio.to_thread(known.planner.restart, current)
                await self._enter(known, kept, restarted, info)
            elif is_running and info.run == current.run:
                if known.entered != current.number:  # another process began it
                    await self._enter(known, kept, current, info)
            else:
                await asyncio.to_thread(known.planner.end, current)
        elif info is not None and info.state in (CrawlState.STOPPED, CrawlState.EXPIRED):
            await asyncio.to_thread(end_visits, known.index)
        elif not is_running:
            for scope in await asyncio.to_thread(known.index.adopt_scopes):
                log.info("%s %s: %s", logs.SCOPE_ADOPTED, kept.crawl.id, scope.sentence)
            for one in await asyncio.to_thread(known.planner.plan):
                if one.name not in known.told:
                    known.told.add(one.name)
                    sentence = shortfall_sentence(
                        one.name, one.pages, one.visits_a_day, known.index.schedule.limits.longest
                    )
                    log.warning("%s %s: %s", logs.BUDGET_TOO_SMALL, kept.crawl.id, sentence)
            due = await asyncio.to_thread(known.index.next_due)
            if due is not None and due <= time.time():
                begun = await asyncio.to_thread(known.planner.begin)
                await self._enter(known, kept, begun, info)

    async def _enter(self, known: _KeptIndex, kept: KeptCrawl, current: Round, info: CrawlInfo | None) -> None:
        """Add the pages of a round that are not visited yet to the frontier."""
        index, after = known.index, BEFORE_ALL
        pages = await asyncio.to_thread(index.visits, current, after=after, limit=_PAGES_AT_ONCE)
        if not pages:  # the budget is used up, or all are visited
            await asyncio.to_thread(known.planner.end, current)
            return
        is_running = info is not None and info.state is CrawlState.RUNNING
        expires = {kept.spider: kept.terms.expires}
        try:
            run = await self._frontier.open_crawl(kept.crawl, fresh=not is_running, expires=expires)
        except CrawlRefused as refused:
            if not refused.is_running:  # else a request has begun the run, which the next step joins
                await asyncio.to_thread(end_visits, index)
            return
        current = await asyncio.to_thread(index.enter_run, current, run.number)
        while pages:
            for terms, batches in kept.visits(index, pages, self._secret):
                await self._frontier.add(run, terms, batches, seeds=True)
            after = pages[-1].key
            pages = await asyncio.to_thread(index.visits, current, after=after, limit=_PAGES_AT_ONCE)
        known.entered = current.number

    # --- changes ------------------------------------------------------------------------------------------------------

    async def _publish(self, known: _KeptIndex) -> bool:
        """Publish changes that were not published yet. Return True if there are more."""
        index, crawl = known.index, known.crawl
        published = int(await asyncio.to_thread(index.fact, _PUBLISHED) or 0)
        try:
            found = await asyncio.to_thread(index.changes, published, _CHANGES_AT_ONCE)
        except BadInput:  # the bus was away for so long that changes are deleted
            found = await asyncio.to_thread(index.changes, 0, _CHANGES_AT_ONCE)
        if not found:
            return False
        values = [
            msgspec.json.encode({"appid": crawl.appid, "crawlid": crawl.crawlid, **msgspec.to_builtins(change)})
            for change in found
        ]
        await self._bus.publish(self._topics.changes, values, keys=[crawl.token.encode()] * len(values))
        await asyncio.to_thread(index.note, _PUBLISHED, str(found[-1].cursor))
        return len(found) == _CHANGES_AT_ONCE
