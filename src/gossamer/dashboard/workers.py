"""Workers and services: what runs, how long each is silent, and what it waits for."""

from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage


async def show(page: DashboardPage) -> Response:
    """Return the page."""
    found = await page.service.get("/v1/workers")
    items = sorted(found["items"], key=lambda worker: worker["name"])
    return page.render("workers.html", workers=items, processes=found["processes"], troubles=found["troubles"])
