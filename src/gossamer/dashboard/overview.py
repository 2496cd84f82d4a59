"""Overview: what needs attention, what runs, and how the service is."""

import asyncio

from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage

_CRAWLS_SHOWN = 12


async def show(page: DashboardPage) -> Response:
    """Return the page."""
    health, running, workers, queues = await asyncio.gather(
        page.service.get("/"),
        page.service.get("/v1/crawls", state="running", limit=_CRAWLS_SHOWN),
        page.service.get("/v1/workers"),
        page.service.get("/v1/queues"),
    )
    return page.render(
        "overview.html",
        health=health,
        crawls=running["items"],
        has_more=bool(running["cursor"]),
        workers=workers["items"],
        processes=workers["processes"],
        troubles=workers["troubles"],
        queued=queues["total"],
        leased=sum(worker["leased"] for worker in workers["items"]),
    )
