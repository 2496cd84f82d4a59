"""Visits of pages that a page index knows, as requests of a run."""

import asyncio
import time

import msgspec

from gossamer.fresh.index import BEFORE_ALL, PageIndex, Round
from gossamer.fresh.page import IndexedPage
from gossamer.fresh.rounds import KeptCrawl
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Run
from gossamer.wiring.plan import Plan

_PAGES_AT_ONCE = 1000
"""Pages that are read from the index and added to the frontier at a time. More take memory, fewer take calls."""


class Visits:
    """Pages of a crawl that is kept up to date, which a run visits."""

    def __init__(self, index: PageIndex, current: Round, plan: Plan, *, only_missing: bool = False) -> None:
        """`only_missing`: visit only the pages that wait for a confirmation that they are gone."""
        self._index = index
        self._round = current
        self._plan = plan
        self._only_missing = only_missing

    async def has_visits(self, *, is_known: bool) -> bool:
        """Return whether there is something to fetch. `is_known`: the frontier knows the crawl; it may have lost what
        an earlier command has entered otherwise. May be repeated, as the next."""
        return await asyncio.to_thread(self._has_visits, is_known)

    def _has_visits(self, is_known: bool) -> bool:
        if self._round.run and not is_known and not self._only_missing:
            # The frontier lost a run that was not over, with links of pages that are in the index: all pages are read
            # again for their links.
            self._round = self._index.restart_round(self._round, time.time())
        return bool(self._pages(after=BEFORE_ALL, limit=1)) or bool(self._new_seeds())

    def _pages(self, *, after: int, limit: int) -> list[IndexedPage]:
        if self._only_missing:
            return self._index.unconfirmed(after=after, limit=limit)
        return self._index.visits(self._round, after=after, limit=limit)

    def _new_seeds(self) -> list[str]:
        """Return the given URLs that the index does not know."""
        if self._only_missing:
            return []
        keys = {self._index.key(url): url for url in self._plan.seeds}
        return [keys[key] for key in keys.keys() - self._index.known(keys)]

    async def enter(self, frontier: ValkeyFrontier, run: Run) -> int:
        """Add the pages to the run, and return how many were new to it."""
        self._round = await asyncio.to_thread(self._index.enter_run, self._round, run.number)
        plan, added = self._plan, 0
        kept = KeptCrawl(crawl=plan.crawl, spider=plan.spider, priority=plan.priority, terms=plan.terms)
        seeds = set(await asyncio.to_thread(self._new_seeds))
        for batches in msgspec.structs.replace(plan, seeds=tuple(url for url in plan.seeds if url in seeds)).batches(
            frontier.secret
        ):
            added += (await frontier.add(run, plan.terms, batches, seeds=True)).added
        after = BEFORE_ALL
        while pages := await asyncio.to_thread(self._pages, after=after, limit=_PAGES_AT_ONCE):
            after = pages[-1].key
            batches = kept.batches(pages, frontier.secret, is_plain=self._round.is_plain)
            added += (await frontier.add(run, plan.terms, batches, seeds=True)).added
        return added
