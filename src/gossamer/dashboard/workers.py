"""Workers and services: what runs, how it is, and what it waits for."""

import asyncio
from typing import Final

from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage

_WORKERS: Final = 50
_SERVICES: Final = 20


async def show(page: DashboardPage) -> Response:
    """Return a page of workers and one of service processes. Each is turned over by itself."""
    found, services, counts = await asyncio.gather(
        page.service.get("/v1/workers", cursor=page.query.get("workers"), limit=_WORKERS),
        page.service.get("/v1/processes", cursor=page.query.get("services"), limit=_SERVICES),
        page.service.get("/v1/worker-counts"),
    )
    facts = {each["worker"]: each for each in found["facts"]}
    return page.render(
        "workers.html",
        workers=[(worker, facts.get(worker["name"])) for worker in found["items"]],
        more_workers=found["cursor"],
        services=services["items"],
        more_services=services["cursor"],
        counts=counts,
    )
