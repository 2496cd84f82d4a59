"""Part of the overview about the platform: jobs that run and wait, nodes, and what needs attention."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from gossamer.dashboard.pages import DashboardPage

_FAILED_SHOWN: Final = 5
_RUNNING_SHOWN: Final = 10
_LOST_SHOWN: Final = 5


async def platform_values(page: DashboardPage) -> Mapping[str, Any]:
    """Return what the overview shows of the platform."""
    counts, failed, running = await asyncio.gather(
        page.platform.get("/v1/jobs/counts"),
        page.platform.get("/v1/jobs", state="failed", limit=_FAILED_SHOWN),
        page.platform.get("/v1/jobs", state=["running", "starting", "stopping"], limit=_RUNNING_SHOWN),
    )
    lost: list[Any] = []
    nodes: dict[str, Any] = {"nodes": {}, "slots": 0}
    if knows_nodes := not page.visitor.project:
        lost, nodes = await asyncio.gather(
            page.platform.get("/v1/nodes", state="lost", limit=_LOST_SHOWN, latest_first=True),
            page.platform.get("/v1/node-counts"),
        )
    return {
        "job_counts": counts["jobs"],
        "failed_jobs": failed["jobs"],
        "running_jobs": running["jobs"],
        "lost": lost,
        "online": nodes["nodes"].get("online", 0),
        "knows_nodes": knows_nodes,
        "slots": nodes["slots"],
    }
