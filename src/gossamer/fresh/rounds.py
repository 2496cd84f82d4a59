"""Rounds of a crawl that is kept up to date: their size within the budget, and their pages as requests (ADR 25).

A round is one run of the crawl in the frontier (the store of requests that wait), with an empty seen-set. Blocking, as
the index is.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from gossamer.fresh.index import BudgetShortfall, PageIndex, Round, VisitBudget
from gossamer.fresh.page import IndexedPage, PageKind
from gossamer.fresh.validators import conditional_headers
from gossamer.model.crawl import Crawl, QueryOrder, RevisitOptions, RevisitRule, Terms
from gossamer.model.request import Batch, Payload, pack
from gossamer.policy.priorities import LOWEST_PRIORITY, PRIORITY_STEP
from gossamer.policy.revisits import DAY_SECONDS
from gossamer.policy.urls import fingerprint, host, registered_domain, spider_seed, with_sorted_query
from gossamer.policy.words import counted, duration_text

_ALL: Final = 1 << 62
_PLAN_SECONDS: Final = 60.0
"""Shortest time between two decisions about all pages, each of which reads the whole index."""
_PLAN_SHARE: Final = 20
"""Time between two such decisions, as a multiple of the time that one takes."""
_PLANNED: Final = "planned"
"""Fact of an index: the options by which its pages were planned for single rounds."""
_BUDGET_SHARE: Final = 0.98
"""Share of the time of a budget after which the visits of a single round do not count any more."""
_CLOCK_SET_SECONDS: Final = 60.0
"""Time by which a clock is set so that pages may be due at a wrong time."""


def _text(options: RevisitOptions) -> str:
    """Return a text that is equal for equal options."""
    return msgspec.json.encode(options).decode()


class KeptCrawl(msgspec.Struct, frozen=True, kw_only=True):
    """A crawl that is kept up to date, and the options of its visits."""

    crawl: Crawl
    spider: str
    priority: int
    terms: Terms

    def enter(self, index: PageIndex, urls: Sequence[str]) -> int:
        """Enter pages of which a site has told, within the limits of the crawl, and return how many are new."""
        depth = min(1, self.terms.maxdepth or 0)
        return index.enter(urls, depth=depth, most=self.crawl.max_pages, domain_most=self.terms.domain_max_pages)

    def visits(
        self, index: PageIndex, pages: Sequence[IndexedPage], secret: int, *, is_windowed: bool = True
    ) -> list[tuple[Terms, list[Batch]]]:
        """Return visits of these pages as requests, with their terms: those that have not begun when the window of the
        page closes are left out. `secret`: the frontier's key for fingerprints. `is_windowed`: False: none is."""
        found = []
        for closing, some in (index.closings(pages) if is_windowed else {0: pages}).items():
            terms = self.terms
            if closing and not 0 < terms.expires < closing:
                terms = msgspec.structs.replace(terms, expires=closing, links_expire=terms.expires)
            found.append((terms, self._batches(some, secret)))
        return found

    def _batches(self, pages: Sequence[IndexedPage], secret: int) -> list[Batch]:
        """Return visits of these pages as requests, by domain and depth."""
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
            headers = conditional_headers(page.facts.etag, page.facts.modified)
            kind = page.facts.kind
            payload = Payload(
                headers=headers or None,
                sitemap=kind in (PageKind.SITEMAP, PageKind.LISTED_SITEMAP),
                listed=kind == PageKind.LISTED_SITEMAP,
            )
            batch.payloads = [*(batch.payloads or ()), pack(payload)]
        return list(batches.values())


def shortfall_sentence(domain: str, pages: int, visits_a_day: int, longest: float) -> str:
    """Return that a budget is too small, and the one that would do, for a person. `longest`: age in seconds."""
    days, rest = divmod(longest, DAY_SECONDS)
    age = counted(int(days), "day") if days and not rest else duration_text(longest)
    return (
        f"The budget is too small to visit each of the {pages:,} pages of {domain} once in {age}: that takes "
        f"{visits_a_day:,}/1d for them alone."
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


class RoundSize(NamedTuple):
    """Size of a round."""

    pages: int
    """Pages of the index."""
    due: int
    """Those of them that were due."""
    most: int
    """Largest number of pages that the round may visit."""


def _at_least(rule: RevisitRule, seconds: float) -> RevisitRule:
    """Return a rule whose times are at least so long."""
    shortest, longest = (given and max(given, seconds) for given in (rule.shortest, rule.longest))
    return msgspec.structs.replace(rule, shortest=shortest, longest=longest)


class RoundPlanner:
    """Begins and ends the rounds of a crawl.

    Rounds without an end follow each other as pages become due. Single rounds begin when a person wants them, for
    example once a day. So a page may be visited early, by up to half of the usual time from one round to the next: it
    would be late by more in the next one. And no page is planned more often than there are rounds; otherwise pages that
    change often would use up a part of the budget that no round can give them.
    """

    def __init__(
        self, index: PageIndex, options: RevisitOptions, *, is_endless: bool, visits_all: bool = False
    ) -> None:
        """`is_endless`: rounds follow each other. `visits_all`: they visit all pages, due or not."""
        self._index = index
        self._is_endless = is_endless
        self._visits_all = visits_all
        self.size = RoundSize(0, 0, 0)
        """Size of the single round that was begun last."""
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
        index, options, now, most = self._index, self._options, self._index.clock(), self._most()
        if self._is_endless:
            return index.begin_round(now, most=most, budget=self._budget())
        habit = index.habit_seconds(now)
        index.follow(
            msgspec.structs.replace(
                options,
                shortest=min(max(options.shortest, habit), options.longest),
                rules=tuple(_at_least(rule, habit) for rule in options.rules),
            )
        )
        if index.fact(_PLANNED) != _text(options):  # else the pages were planned after the round before
            self.plan()
        ahead, pages = habit / 2, index.count()
        budget = self._budget()
        self.size = RoundSize(pages, index.count_due(now + ahead), index.allowed(most, budget))
        return index.begin_round(now, most=most, budget=budget, ahead=ahead, only_due=not self._visits_all)

    def _most(self) -> int:
        """Return the most visits of a round that begins now, whatever the budget."""
        return self._pace.allowed(self._index.planned_rate) if self._is_endless else _ALL

    def _budget(self) -> VisitBudget | None:
        """Return the budget of a round that begins now. None: there is no limit."""
        options, now = self._options, self._index.clock()
        if not options.budget_visits:
            return None
        if self._is_endless:
            return VisitBudget(options.budget_visits, now - options.budget_seconds)
        # A command that begins once a day does so some seconds earlier or later.
        return VisitBudget(options.budget_visits, now - _BUDGET_SHARE * options.budget_seconds, by_beginning=True)

    def allowed(self) -> int:
        """Return the most visits that a round may have now."""
        return self._index.allowed(self._most(), self._budget())

    @property
    def is_windowed(self) -> bool:
        """True: pages whose window is closed are not visited."""
        return not self._visits_all

    def restart(self, current: Round) -> Round:
        """Begin a round again whose run the frontier has lost. Returns it."""
        return self._index.restart_round(current, self._index.clock(), most=self._most(), budget=self._budget())

    def confirm_missing(self, current: Round) -> int:
        """Let a single round visit the pages that it found missing once more, as the budget allows. Returns their
        number."""
        return self._index.confirm_missing(current, most=self._most(), budget=self._budget())

    def visit_announced(self, current: Round) -> int:
        """Let a single round also visit the pages whose change a sitemap has announced meanwhile, as the budget allows.
        Returns their number."""
        now = self._index.clock()
        return self._index.visit_announced(current, now, most=self._most(), budget=self._budget())

    def end(self, current: Round) -> None:
        """End a round, whose run is over."""
        self._index.end_round(current, self._index.clock(), window=self._options.budget_seconds)

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
        if begun < self._next_plan and self._is_endless:
            return []
        found = self._index.plan(self._options.budget_rate)
        if not self._is_endless:
            self._index.note(_PLANNED, _text(self._options))
        self._next_plan = time.monotonic() + max(_PLAN_SECONDS, _PLAN_SHARE * (time.monotonic() - begun))
        return found
