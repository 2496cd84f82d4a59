"""Job groups: jobs that one command has made, with their progress."""

import asyncio
from typing import Final

from starlette.responses import Response

from gossamer.dashboard.pages import DashboardPage
from gossamer_platform.dashboard.jobs import ENDED, row_number
from gossamer_platform.outcome import meaning_of

_A_PAGE: Final = 50


async def show_list(page: DashboardPage) -> Response:
    """Return job groups, the latest first."""
    found = await page.platform.get(
        "/v1/groups", project=page.query.get("project") or None, after=page.query.get("after"), limit=_A_PAGE
    )
    return page.render("groups.html", groups=found["groups"], next=found["next"], ended=ENDED)


async def show(page: DashboardPage) -> Response:
    """Return one group with its jobs."""
    number = row_number(page, page.query)
    group, found = await asyncio.gather(
        page.platform.get(f"/v1/groups/{number}"),
        page.platform.get("/v1/jobs", group=number, after=page.query.get("after"), limit=_A_PAGE),
    )
    return page.render(
        "group.html", group=group, jobs=found["jobs"], next=found["next"], ended=ENDED, meaning_of=meaning_of
    )


async def cancel(page: DashboardPage) -> Response:
    """Ask all jobs of a group to stop, and show it."""
    number = row_number(page, page.form)
    await page.platform.call("POST", f"/v1/groups/{number}/cancel")
    return page.go("/group", id=str(number))
