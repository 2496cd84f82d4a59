"""Overview: what needs attention, what runs, and how each API is."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage
from gossamer.dashboard.sections import DashboardSection
from gossamer.dashboard.service import ApiRefused

_CRAWLS_SHOWN = 12
_LATEST_READ = 24
"""Crawls that started last, among which those that have ended with failures are looked for. More take longer."""
_ENDED_SHOWN = 5
_DAY = 86400.0
_NO_RATES: Final[Mapping[str, Any]] = {"items": []}
_NO_CRAWLS: Final[Mapping[str, Any]] = {"items": [], "cursor": "", "history_error": "", "frontier_error": ""}


async def show(page: DashboardPage) -> Response:
    """Return the page, with a part of each section that the visitor may see."""
    sections = [section for section in page.site.sections if not (section.is_for_all and page.visitor.project)]
    parts = await asyncio.gather(*(_part(page, section) for section in sections))
    faults = [fault for _, _, fault in parts if fault]
    values = {name: value for _, given, _ in parts for name, value in given.items()}
    faults = list(dict.fromkeys([*faults, *page.faults]))
    return page.render("overview.html", parts=[name for name, _, fault in parts if not fault], faults=faults, **values)


async def _part(page: DashboardPage, section: DashboardSection) -> tuple[str, Mapping[str, Any], str]:
    """Return a section's template and its values; or why its API cannot be asked, in place of values."""
    try:
        return section.overview.template, await section.overview.values(page), ""
    except ApiRefused as error:
        return section.overview.template, {}, page.detail(error)


async def crawl_values(page: DashboardPage) -> Mapping[str, Any]:
    """Return what the overview shows of the crawl service. Without the frontier, that is what the history knows."""
    health, running, latest, counts, queues, rates = await asyncio.gather(
        page.service.get("/"),
        page.known(page.service.get("/v1/crawls", state="running", limit=_CRAWLS_SHOWN), _NO_CRAWLS),
        page.known(page.service.get("/v1/crawls", limit=_LATEST_READ), _NO_CRAWLS),
        page.known(page.service.get("/v1/worker-counts"), None),
        page.known(page.service.get("/v1/queues", limit=1), None),
        _rates(page),
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
