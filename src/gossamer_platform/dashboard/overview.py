"""Part of the overview about the platform: jobs that run and wait, nodes, and what needs attention."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from gossamer.dashboard.pages import DashboardPage

_FAILED_SHOWN: Final = 5
_RUNNING_SHOWN: Final = 10


async def platform_values(page: DashboardPage) -> Mapping[str, Any]:
    """Return what the overview shows of the platform."""
    counts, failed, running = await asyncio.gather(
        page.platform.get("/v1/jobs/counts"),
        page.platform.get("/v1/jobs", state="failed", limit=_FAILED_SHOWN),
        page.platform.get("/v1/jobs", state=["running", "starting", "stopping"], limit=_RUNNING_SHOWN),
    )
    nodes = [] if page.visitor.project else await page.platform.get("/v1/nodes")
    return {
        "job_counts": counts["jobs"],
        "failed_jobs": failed["jobs"],
        "running_jobs": running["jobs"],
        "nodes": nodes,
        "knows_nodes": not page.visitor.project,
        "slots": sum(node["slots"] for node in nodes if node["state"] == "online"),
    }
