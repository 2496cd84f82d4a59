"""Jobs as Scrapy Cloud's clients see them.

Scrapy Cloud has three states: a job that ended is `finished`, however it ended, and `close_reason` and `outcome` tell
how. Times are milliseconds since 1970. Fixed: names and meaning of fields, which are Scrapy Cloud's. Fields of our own
begin with `gossamer_` and may be added.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection

from gossamer_platform.cloud.calls import CloudProject, JobKey
from gossamer_platform.lifecycle import ACTIVE, ENDED, JobState
from gossamer_platform.outcome import counter
from gossamer_platform.state import spiders, tags
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.jobs import Job

STATES: Final[Mapping[str, frozenset[JobState]]] = {
    "pending": frozenset({JobState.PENDING}),
    "running": ACTIVE,
    "finished": ENDED,
    "deleted": frozenset(),
}
"""Our states by Scrapy Cloud's. Fixed."""
_LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
NORMAL_PRIORITY: Final = 2
"""Scrapy Cloud's usual priority, of 0 to 4; here it is 0. Scrapy Cloud's: fixed."""


class JobViews:
    """Makes views of jobs of one project. The rows may be read in any transaction of the database."""

    def __init__(self, project: CloudProject, numbers: Mapping[str, int]) -> None:
        self._project = project
        self._numbers = numbers
        self._tags: dict[int, list[str]] = {}

    @classmethod
    def read(cls, connection: Connection, project: CloudProject, rows: Sequence[Job]) -> "JobViews":
        """Read what views of these jobs need."""
        views = cls(project, spiders.spider_numbers(connection, project.id))
        views._tags = tags.tags_of(connection, [row.id for row in rows])
        return views

    def key(self, row: Job) -> JobKey:
        """Return a job's key."""
        return JobKey(self._project.number, self._numbers[row.spider], row.spider_job)

    def brief(self, row: Job) -> dict[str, Any]:
        """Return what lists of jobs show."""
        state = cloud_state(row)
        begun = row.started_at or row.created_at
        counters = row.stats or {}
        view = {
            "key": str(self.key(row)),
            "ts": _milliseconds(row.ended_at or row.started_at or row.created_at),
            "spider": row.spider,
            "state": state,
            "version": row.ran_version or row.version_name,
            "tags": self._tags.get(row.id) or None,
            "pending_time": _milliseconds(row.created_at),
            "running_time": _milliseconds(row.started_at),
            "finished_time": _milliseconds(row.ended_at),
            "close_reason": close_reason(row),
            "items": counter(counters, "item_scraped_count"),
            "pages": counter(counters, "response_received_count"),
            "logs": sum(counter(counters, f"log_count/{level}") for level in _LEVELS),
            "errors": sum(counter(counters, f"log_count/{level}") for level in ("ERROR", "CRITICAL")),
        }
        if row.ended_at is not None:
            view["elapsed"] = max(0, round(1000 * (row.ended_at - begun)))
        return {name: value for name, value in view.items() if value is not None}

    def full(self, row: Job) -> dict[str, Any]:
        """Return a job's metadata, with the values that clients attached."""
        brief = self.brief(row)
        for name in ("key", "ts", "elapsed", "items", "pages", "logs", "errors"):
            brief.pop(name, None)
        own = {
            "project": self._project.number,
            "spider_type": "manual",
            "units": 1,
            "priority": cloud_priority(row.priority),
            "tags": self._tags.get(row.id, []),
            "spider_args": row.arguments,
            "job_settings": row.settings,
            "scheduled_by": "schedule" if row.schedule_id is not None else "api",
            "gossamer_job": row.id,
            "gossamer_state": row.state,
        }
        if row.state in ENDED:
            own["outcome"] = close_reason(row)
        if row.stats:
            own["scrapystats"] = row.stats
        if row.reason:
            own["gossamer_reason"] = row.reason
        return {**(row.notes or {}), **brief, **own}


async def read_views(database: StateDatabase, project: CloudProject, rows: Sequence[Job]) -> JobViews:
    """Read what views of these jobs need."""
    return await database.read(lambda connection: JobViews.read(connection, project, rows))


def cloud_state(row: Job) -> str:
    """Return Scrapy Cloud's word for a job's state."""
    return next(word for word, states in STATES.items() if row.state in states)


def close_reason(row: Job) -> str | None:
    """Return why a job ended. None: it has not. `finished` means success, and nothing else does."""
    if row.state == JobState.FINISHED:
        return str(row.finish_reason or "finished")
    if row.state == JobState.CANCELLED:
        return "cancelled"
    if row.state != JobState.FAILED:
        return None
    return row.finish_reason if row.finish_reason not in (None, "finished") else "failed"


def cloud_priority(priority: float) -> int:
    """Return Scrapy Cloud's priority, from 0 to 4."""
    return round(min(max(priority + NORMAL_PRIORITY, 0), 4))


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(1000 * seconds)
