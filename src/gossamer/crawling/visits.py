"""Visits of pages that a page index knows, as requests of a run."""

import asyncio

import msgspec

from gossamer.fresh.index import BEFORE_ALL, PageIndex, Round
from gossamer.fresh.page import IndexedPage
from gossamer.fresh.rounds import KeptCrawl, RoundPlanner
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Run
from gossamer.wiring.plan import Plan

_PAGES_AT_ONCE = 1000
"""Pages that are read from the index and added to the frontier at a time. More take memory, fewer take calls."""


class Visits:
    """Pages of a crawl that is kept up to date, which a run visits."""

    def __init__(
        self, index: PageIndex, current: Round, plan: Plan, planner: RoundPlanner, *, retries_seeds: bool = False
    ) -> None:
        """`retries_seeds`: also visit the given URLs that never gave a page."""
        self._index = index
        self._round = current
        self._plan = plan
        self._planner = planner
        self._retries_seeds = retries_seeds

    async def has_visits(self, *, is_known: bool) -> bool:
        """Return whether there is something to fetch. `is_known`: the frontier knows the crawl, also if it finished
        longer ago than crawls are remembered; it may have lost what an earlier command has entered otherwise. May be
        repeated, as the next."""
        return await asyncio.to_thread(self._has_visits, is_known)

    def _has_visits(self, is_known: bool) -> bool:
        if self._round.run and not is_known:
            # The frontier lost a run that was not over, with links of pages that are in the index: all pages are read
            # again for their links.
            self._round = self._planner.restart(self._round)
        return bool(self._pages(after=BEFORE_ALL, limit=1)) or bool(self._new_seeds())

    def _pages(self, *, after: int, limit: int) -> list[IndexedPage]:
        return self._index.visits(self._round, after=after, limit=limit)

    def _new_seeds(self) -> list[str]:
        """Return the given URLs that the index does not know."""
        keys = {self._index.key(url): url for url in self._plan.seeds}
        return [keys[key] for key in keys.keys() - self._index.known(keys, with_failed=not self._retries_seeds)]

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
            for terms, batches in kept.visits(
                self._index, pages, frontier.secret, is_windowed=self._planner.is_windowed
            ):
                added += (await frontier.add(run, terms, batches, seeds=True)).added
        return added
