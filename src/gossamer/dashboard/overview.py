"""Overview: what needs attention, what runs, and how each API is."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from gossamer.dashboard.bus import crawl_of
from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.sections import DashboardSection, OverviewPart
from gossamer.dashboard.service import BUS_SECONDS, ApiRefused
from gossamer.dashboard.visitors import ADMIN

_CRAWLS_SHOWN = 12
_LATEST_READ = 24
"""Crawls that started last, among which those that have ended with failures are looked for. More take longer."""
_ENDED_SHOWN = 5
_DAY = 86400.0
_LETTERS_READ: Final = 20
"""Rejected requests among which those of the last day are counted. More take longer."""
_NONE_REJECTED: Final[Mapping[str, Any]] = {"rejected": 0, "more_rejected": False, "last_rejected": None}
_NO_RATES: Final[Mapping[str, Any]] = {"items": []}
_NO_CRAWLS: Final[Mapping[str, Any]] = {"items": [], "cursor": "", "history_error": "", "frontier_error": ""}


async def show(page: DashboardPage) -> Response:
    """Return the page, with a part of each section that the visitor may see."""
    sections = [section for section in page.site.sections if not (section.is_for_all and page.visitor.project)]
    parts = await asyncio.gather(*(_part(page, section) for section in sections))
    faults = list(dict.fromkeys([*(fault for _, _, fault in parts if fault), *page.faults]))
    values = {name: value for _, given, _ in parts for name, value in given.items()}
    return page.render("overview.html", parts=[part for part, _, fault in parts if not fault], faults=faults, **values)


async def _part(page: DashboardPage, section: DashboardSection) -> tuple[OverviewPart, Mapping[str, Any], str]:
    """Return a section's part and its values; or why its API cannot be asked, in place of values."""
    try:
        return section.overview, await section.overview.values(page), ""
    except ApiRefused as error:
        return section.overview, {}, page.detail(error)


async def crawl_values(page: DashboardPage) -> Mapping[str, Any]:
    """Return what the overview shows of the crawl service. Without the frontier, that is what the history knows."""
    health, running, latest, counts, queues, rates, rejected = await asyncio.gather(
        page.service.get("/"),
        page.known(page.service.get("/v1/crawls", state="running", limit=_CRAWLS_SHOWN), _NO_CRAWLS),
        page.known(page.service.get("/v1/crawls", limit=_LATEST_READ), _NO_CRAWLS),
        page.known(page.service.get("/v1/worker-counts"), None),
        page.known(page.service.get("/v1/queues", limit=1), None),
        _rates(page),
        page.known(_rejected(page), _NONE_REJECTED),
    )
    return {
        "health": health,
        "crawls": running["items"],
        "failing": [
            *(crawl for crawl in running["items"] if crawl["total"]["failed"]),
            *_ended_badly(latest["items"], now=time.time())[:_ENDED_SHOWN],
        ],
        "has_more": bool(running["cursor"]),
        "knows_crawls": running is not _NO_CRAWLS,
        "history_error": running["history_error"],
        "frontier_error": running["frontier_error"],
        "counts": counts,
        "rates": rates["items"],
        "queued": queues and queues["total"],
        **rejected,
    }


async def _rejected(page: DashboardPage) -> Mapping[str, Any]:
    """Return the requests that were rejected in the last day and not sent again, as far as the latest ones say: their
    number, whether there may be more, and for visitors who may see them, the last one with its crawl."""
    counts = await page.service.get("/v1/stats", stats="kafka-monitor")
    if not counts.get("fail", {}).get(str(int(_DAY))):  # none: the bus need not be read
        return _NONE_REJECTED
    query = {"limit": _LETTERS_READ, "latest_first": True}
    letters = await page.service.call("GET", "/v1/dead-letters", query=query, seconds=BUS_SECONDS)
    open_ones = [
        letter for letter in letters["items"] if letter["timestamp"] > time.time() - _DAY and not letter["resent"]
    ]
    last = open_ones[0] if open_ones and page.may(ADMIN) else None
    return {
        "rejected": len(open_ones),
        "more_rejected": letters["more"] and len(open_ones) == len(letters["items"]),
        "last_rejected": last and {**last, "crawl": crawl_of(last)},
    }


async def _rates(page: DashboardPage) -> Mapping[str, Any]:
    """Return the speed of the service over time; none for the part that follows, which the page goes on with."""
    return _NO_RATES if page.part else await page.known(page.service.get("/v1/rates"), _NO_RATES)


def _ended_badly(crawls: Sequence[Mapping[str, Any]], *, now: float) -> list[Mapping[str, Any]]:
    """Return the crawls that have ended in the last day with failed requests, or that the frontier has lost."""
    return [
        crawl
        for crawl in crawls
        if crawl["state"] == "lost" or (crawl["state"] in ("finished", "expired") and crawl["total"]["failed"])
        if (crawl["ended"] or 0.0) > now - _DAY
    ]
