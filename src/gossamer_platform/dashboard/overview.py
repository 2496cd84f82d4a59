"""Part of the overview about the platform: jobs that run and wait, nodes, and what needs attention."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from gossamer.dashboard.pages import DashboardPage
from gossamer_platform.outcome import meaning_of

_FAILED_SHOWN: Final = 5
_LATEST_READ: Final = 24
"""Jobs that were made last, among those that have finished, in which errors are looked for. More take longer."""
_ERRORS_SHOWN: Final = 5
_DAY: Final = timedelta(days=1)
_RUNNING_SHOWN: Final = 10
_LOST_SHOWN: Final = 5
_ERROR_COUNTERS: Final = ("log_count/ERROR", "log_count/CRITICAL")
"""Counters of Scrapy for the errors in a job's log."""


async def platform_values(page: DashboardPage) -> Mapping[str, Any]:
    """Return what the overview shows of the platform."""
    counts, failed, finished, running = await asyncio.gather(
        page.platform.get("/v1/jobs/counts"),
        page.platform.get("/v1/jobs", state="failed", limit=_FAILED_SHOWN),
        page.platform.get("/v1/jobs", state="finished", limit=_LATEST_READ),
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
        "meaning_of": meaning_of,
        "jobs_with_errors": _with_errors(finished["jobs"], now=datetime.now(UTC))[:_ERRORS_SHOWN],
        "running_jobs": running["jobs"],
        "lost": lost,
        "online": nodes["nodes"].get("online", 0),
        "draining": nodes["nodes"].get("draining", 0),
        "knows_nodes": knows_nodes,
        "slots": nodes["slots"],
    }


def _with_errors(jobs: Sequence[Mapping[str, Any]], *, now: datetime) -> list[Mapping[str, Any]]:
    """Return the jobs that have ended in the last day and logged errors."""
    return [
        job
        for job in jobs
        if any((job["stats"] or {}).get(name) for name in _ERROR_COUNTERS)
        if job["ended_at"] and datetime.fromisoformat(job["ended_at"]) > now - _DAY
    ]
