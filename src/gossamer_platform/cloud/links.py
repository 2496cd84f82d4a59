"""Addresses of Scrapy Cloud's web pages, which shub prints: /p/PROJECT and /p/PROJECT/SPIDER/JOB, all of them numbers.

They lead to the dashboard's pages of the project and of the job, by a relative address, because a proxy may serve all
of it below a path of its own.
"""

import re
from typing import Final
from urllib.parse import urlencode

from starlette.responses import RedirectResponse, Response

from gossamer_platform.cloud.calls import CloudCall, CloudRoute
from gossamer_platform.state.tokens import TokenScope


async def _job(call: CloudCall) -> Response:
    row = await call.existing_job()
    return _redirect(call, f"ui/job?id={row.id}")


async def _project(call: CloudCall) -> Response:
    project = await call.project()
    return _redirect(call, f"ui/project?{urlencode({'project': project.name})}")


def _redirect(call: CloudCall, path: str) -> Response:
    folders = call.request.scope["raw_path"].count(b"/") - 1
    return RedirectResponse("../" * folders + path, 302)


PAGE: Final = re.compile(r"/p/\d+(/\d+/\d+)?")
"""Path of such a page."""
ROUTES: Final = (
    CloudRoute("GET", "/p/{project:int}", TokenScope.READ, _project),
    CloudRoute("GET", "/p/{project:int}/{spider:int}/{job:int}", TokenScope.READ, _job),
)
