"""Workers and services: what runs, how it is, and what it waits for."""

from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage


async def show(page: DashboardPage) -> Response:
    """Return the page."""
    found = await page.service.get("/v1/workers")
    facts = {each["worker"]: each for each in found["facts"] if each["worker"]}
    workers = [(worker, facts.get(worker["name"])) for worker in sorted(found["items"], key=lambda each: each["name"])]
    services = [each for each in found["facts"] if not each["worker"]]
    versions = {each["version"] for each in found["facts"]}
    return page.render(
        "workers.html",
        workers=workers,
        services=services,
        processes=found["processes"],
        troubles=found["troubles"],
        has_versions=len(versions) > 1,
    )
