"""Freshness of the pages of a crawl, and the next visit of one of them. Blocking.

Fixed, because programs read them: the names of the fields. Times are in epoch seconds, ages and intervals in seconds.
"""

import math

import msgspec

from gossamer.fresh.index import PageIndex
from gossamer.policy.revisits import DAY_SECONDS


class DomainFreshness(msgspec.Struct, frozen=True):
    """Freshness of the pages of a domain."""

    domain: str
    pages: int
    """Pages in the index, also those that are gone or redirect"""
    live: int
    gone: int
    due: int
    """Pages that wait for a visit: the debt of visits"""
    mean_age: float
    """Time since the visits of live pages, on average"""
    longest_age: float
    visits_a_day: float | None
    """Visits that the budget buys. Null, as the next three: nothing is planned yet"""
    freshness: float | None
    """Share of pages that is expected to be as the index has them"""
    freshness_at_twice_the_budget: float | None
    visits_a_day_needed: int | None
    """Visits that reach the longest age of each page, if the budget does not. 0: it does"""


class CrawlFreshness(msgspec.Struct, frozen=True):
    """Freshness of the pages of a crawl."""

    rounds: int
    """Rounds that have begun"""
    cursor: int
    """Cursor of the last change"""
    domains: list[DomainFreshness]
    """The domain with the most pages first"""


class PageVisits(msgspec.Struct, frozen=True):
    """Time of the next visit of a page, and the figures behind it."""

    state: str
    """`live`, `missing`, `gone`, `redirected`, `failed` or `refused`"""
    fetched: float
    due: float
    changes_a_day: float | None
    """Estimate. Null: there is none yet"""
    interval: float
    """Time between two visits"""
    weight: float
    """1, and the expected new links of a visit"""
    changed: float
    """Time of the visit that found the latest change"""
    misses: int
    """Visits in a row that did not find it"""


def freshness_of(index: PageIndex, now: float) -> CrawlFreshness:
    """Return how up to date the pages of an index are. Reads all of its pages. Raises SinkError."""
    outlooks = index.outlooks()
    domains = []
    for one in index.figures(now):
        expected = outlooks.get(one.name)
        domains.append(
            DomainFreshness(
                domain=one.name,
                pages=one.pages,
                live=one.live,
                gone=one.gone,
                due=one.due,
                mean_age=round(one.mean_age, 1),
                longest_age=round(max(now - one.oldest, 0.0), 1) if one.live else 0.0,
                visits_a_day=round(expected.fetches * DAY_SECONDS, 1) if expected else None,
                freshness=round(expected.freshness, 4) if expected else None,
                freshness_at_twice_the_budget=round(expected.doubled, 4) if expected else None,
                visits_a_day_needed=math.ceil(expected.needed * DAY_SECONDS) if expected else None,
            )
        )
    return CrawlFreshness(index.round_count(), index.last_change(), domains)


def visits_of(index: PageIndex, url: str) -> PageVisits | None:
    """Return when a page is visited next. None: the index does not know it. `url`: canonical. Raises SinkError."""
    page = index.page(url)
    if page is None:
        return None
    return PageVisits(
        state=page.state.name.lower(),
        fetched=page.fetched,
        due=page.due,
        changes_a_day=round(page.rate * DAY_SECONDS, 4) if page.rate else None,
        interval=round(index.interval(page), 1),
        weight=round(page.weight, 2),
        changed=page.facts.changed,
        misses=page.facts.misses,
    )
