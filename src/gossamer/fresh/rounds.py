"""Rounds of a crawl that is kept up to date: their size within the budget, and their pages as requests (ADR 25).

A round is one run of the crawl in the frontier (the store of requests that wait), with an empty seen-set. Blocking, as
the index is.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from gossamer.fresh.index import BudgetShortfall, PageIndex, Round
from gossamer.fresh.page import IndexedPage, PageKind
from gossamer.fresh.validators import conditional_headers
from gossamer.model.crawl import Crawl, QueryOrder, RevisitOptions, Terms
from gossamer.model.request import Batch, Payload, pack
from gossamer.policy.priorities import LOWEST_PRIORITY, PRIORITY_STEP
from gossamer.policy.revisits import DAY_SECONDS
from gossamer.policy.urls import fingerprint, host, registered_domain, spider_seed, with_sorted_query

_ALL: Final = 1 << 62
_PLAN_SECONDS: Final = 60.0
"""Shortest time between two decisions about all pages, each of which reads the whole index."""
_PLAN_SHARE: Final = 20
"""Time between two such decisions, as a multiple of the time that one takes."""
_CLOCK_SET_SECONDS: Final = 60.0
"""Time by which a clock is set so that pages may be due at a wrong time."""


class KeptCrawl(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl that is kept up to date, and the options of its visits."""

    crawl: Crawl
    spider: str
    priority: int
    terms: Terms

    def batches(self, pages: Sequence[IndexedPage], secret: int, *, is_plain: bool) -> list[Batch]:
        """Return visits of these pages as requests, by domain and depth. `secret`: the frontier's key for fingerprints.
        `is_plain`: no request is conditional."""
        ignores_order = self.terms.query_order is QueryOrder.IGNORED
        seed = spider_seed(secret, self.spider)
        batches: dict[tuple[str, int], Batch] = {}
        for page in pages:
            name = registered_domain(host(page.url)), page.depth
            if (batch := batches.get(name)) is None:
                priority = max(self.priority - PRIORITY_STEP * page.depth, LOWEST_PRIORITY)
                batch = batches[name] = Batch(self.spider, name[0], priority, page.depth, payloads=[])
            compared = with_sorted_query(page.url) if ignores_order else page.url
            batch.urls.append(page.url)
            batch.fingerprints.append(fingerprint(compared, seed=seed))
            headers = {} if is_plain else conditional_headers(page.facts.etag, page.facts.modified)
            kind = page.facts.kind
            payload = Payload(
                headers=headers or None,
                sitemap=kind in (PageKind.SITEMAP, PageKind.LISTED_SITEMAP),
                listed=kind == PageKind.LISTED_SITEMAP,
            )
            batch.payloads = [*(batch.payloads or ()), pack(payload)]
        return list(batches.values())


def shortfall_sentence(one: BudgetShortfall, longest: float) -> str:
    """Return that a budget is too small, and the one that would do, for a person. `longest`: age in seconds."""
    return (
        f"The budget is too small to visit each of the {one.pages:,} pages of {one.name} once in "
        f"{longest / DAY_SECONDS:g} days: that takes {math.ceil(one.needed * DAY_SECONDS):,}/1d for them alone."
    )


class Pace:
    """Limits the visits of a crawl without an end to twice the planned rate, beside a few. So pages that are overdue,
    because nothing ran for long or a clock has jumped, are not visited all at once."""

    MOST_VISITS = 20_000
    """Visits of a round. Fewer let rounds end sooner, so that what becomes due waits less."""
    FEW_VISITS = 10
    """Visits that a round may always have."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: returns seconds on a clock that is never set."""
        self._clock = clock
        self._last: float | None = None

    def allowed(self, planned_rate: float) -> int:
        """Return the most visits of the round that begins now. `planned_rate`: visits per second; 0: it is not
        known."""
        now, last = self._clock(), self._last
        self._last = now
        if last is None or not planned_rate:
            return self.MOST_VISITS
        return min(self.MOST_VISITS, self.FEW_VISITS + math.ceil(2 * planned_rate * (now - last)))


class RoundPlanner:
    """Begins and ends the rounds of a crawl."""

    def __init__(self, index: PageIndex, options: RevisitOptions, *, is_endless: bool) -> None:
        """`is_endless`: rounds visit what is due, one after the other; False: also pages that are not due."""
        self._index = index
        self._is_endless = is_endless
        self._pace = Pace()
        self._next_plan = -math.inf
        self._offset = self._clock_offset()
        self.follow(options)

    def follow(self, options: RevisitOptions) -> None:
        """Plan by these options from now on."""
        self._options = options
        self._index.follow(options)

    def begin(self) -> Round:
        """Begin a round with the pages that the budget allows, or return the one that is open."""
        index, options, now = self._index, self._options, time.time()
        most = self._pace.allowed(index.planned_rate) if self._is_endless else _ALL
        if options.budget_visits:
            most = min(most, max(options.budget_visits - index.visited_since(now - options.budget_seconds), 0))
        return index.begin_round(now, only_due=self._is_endless, most=most)

    def end(self, current: Round) -> None:
        """End a round, whose run is over."""
        self._index.end_round(current, time.time(), window=self._options.budget_seconds)

    def next_due(self) -> int | None:
        """Return when the next page is due. None: there is no page. Decides about all pages anew first if the clock was
        set: what was fetched by a wrong clock may be due in years."""
        offset = self._clock_offset()
        if abs(offset - self._offset) > _CLOCK_SET_SECONDS:
            self._offset, self._next_plan = offset, -math.inf
            self.plan()
        return self._index.next_due()

    def _clock_offset(self) -> float:
        """Return the time of the clock at which one that is never set began."""
        return self._index.clock() - time.monotonic()

    def plan(self) -> list[BudgetShortfall]:
        """Decide anew how often the pages are visited, now and then. Returns the domains for which the budget is too
        small."""
        begun = time.monotonic()
        if begun < self._next_plan:
            return []
        found = self._index.plan(self._options.budget_rate)
        self._next_plan = time.monotonic() + max(_PLAN_SECONDS, _PLAN_SHARE * (time.monotonic() - begun))
        return found
