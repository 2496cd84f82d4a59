"""Events that webhooks are told: written in the same transaction as what they report, so none is lost or invented.

An event becomes a row for each webhook that wants it; `delivery/sending.py` sends them. Where no webhook wants an
event, nothing is written. Fixed: the words of kinds and the fields of events, which receivers read; and that an event's
id follows from what it reports, so that no event is written twice.
"""

import statistics
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Connection, func, insert, or_, select, update

from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import fetch, fetch_first, fetch_one
from gossamer_platform.lifecycle import JobState
from gossamer_platform.outcome import counter
from gossamer_platform.state.tables import (
    CrawlFiring,
    JobRow,
    ScheduleRow,
    VersionRow,
    WebhookRow,
    deliveries,
    jobs,
    projects,
    versions,
    webhooks,
)

MAX_WAITING: Final = 10_000
"""Deliveries of a webhook that wait. Further events are dropped and counted."""
_COMPARED: Final = 10
"""Earlier good jobs of a spider that a job is compared with, the latest ones. The docs name it."""
_NEEDED: Final = 3
"""Earlier good jobs without which nothing is compared. The docs name it."""
_SLOW_SECONDS: Final = 60.0
"""Seconds by which a slow job exceeds the usual time at least. The docs name it."""
_FEW: Final = 0.5
"""Part of the usual number of items below which a job has few. The docs name it."""
_NAMES: Final = uuid.UUID("8d8a2c5e-6f5a-4a0e-9f57-2d0b6c1f7a31")
"""Name space of events' ids. Fixed: another one would let an event be sent twice."""


class EventKind(StrEnum):
    """Kind of an event. Stored and sent: a word must not change."""

    JOB_FAILED = "job.failed"
    JOB_FEW_ITEMS = "job.few_items"
    """The job ended well, but without items, or with far fewer than the spider's earlier jobs."""
    JOB_SLOW = "job.slow"
    """The job takes, or took, far longer than the spider's earlier jobs. Reported once, as a rule while it runs."""
    VERSION_BROKEN = "version.broken"
    NODE_LOST = "node.lost"
    SCHEDULE_MISSED = "schedule.missed"
    SCHEDULE_FAILED = "schedule.failed"
    """The crawl service did not take the crawl requests of a schedule."""
    TEST = "webhook.test"
    """A client asked for it."""


def emit(connection: Connection, kind: EventKind, key: str, data: Mapping[str, Any], *, project: int | None) -> None:
    """Write an event for each webhook that wants it. `key` names what it reports, once and for all. `project`: number
    of the project; None: only webhooks of all projects get it."""
    _write(connection, _listeners(connection, project, kind), kind, key, data, project=project)


def _write(
    connection: Connection,
    listeners: Sequence[WebhookRow],
    kind: EventKind,
    key: str,
    data: Mapping[str, Any],
    *,
    project: int | None,
) -> None:
    if not listeners:
        return
    event_id = uuid.uuid5(_NAMES, f"{kind}:{key}").hex
    now = connection.execute(select(DatabaseNow())).scalar_one()
    name = connection.scalar(select(projects.c.name).where(projects.c.id == project)) if project else None
    body = {"id": event_id, "type": kind.value, "timestamp": _iso(now), "project": name, "data": dict(data)}
    for webhook in listeners:
        of_webhook = deliveries.c.webhook_id == webhook.id
        known = select(deliveries.c.id).where(of_webhook, deliveries.c.event_id == event_id)
        if connection.execute(known).first() is not None:
            continue
        waiting = select(func.count()).select_from(deliveries).where(of_webhook, deliveries.c.state == "waiting")
        if (connection.scalar(waiting) or 0) >= MAX_WAITING:
            dropped = update(webhooks).where(webhooks.c.id == webhook.id).values(dropped=webhooks.c.dropped + 1)
            connection.execute(dropped)
            continue
        values: dict[str, Any] = {"event_id": event_id, "event": kind.value, "body": body, "state": "waiting"}
        values |= {"webhook_id": webhook.id, "created_at": now, "next_at": now}
        connection.execute(insert(deliveries).values(**values))


def emit_test(connection: Connection, webhook: WebhookRow) -> None:
    """Write an event for one webhook, whatever it wants."""
    _write(connection, [webhook], EventKind.TEST, uuid.uuid4().hex, {}, project=webhook.project_id)


def _listeners(connection: Connection, project: int | None, *kinds: EventKind) -> list[WebhookRow]:
    """Return the webhooks that want one of these kinds of events of a project."""
    own = webhooks.c.project_id.is_(None)
    statement = select(webhooks).where(own if project is None else or_(own, webhooks.c.project_id == project))
    rows = fetch(connection, WebhookRow, statement.where(webhooks.c.paused.is_(False)))
    return [row for row in rows if any(kind.value in row.events for kind in kinds)]


def report_job_end(connection: Connection, job_id: int) -> None:
    """Write the events of a job that has just finished or failed."""
    project = connection.scalar(select(jobs.c.project_id).where(jobs.c.id == job_id))
    kinds = (EventKind.JOB_FAILED, EventKind.JOB_FEW_ITEMS, EventKind.JOB_SLOW)
    listeners = _listeners(connection, project, *kinds)
    if not listeners:
        return
    row = fetch_one(connection, JobRow, select(jobs).where(jobs.c.id == job_id))
    if row.state == JobState.FAILED:
        emit(connection, EventKind.JOB_FAILED, str(job_id), {"job": _job(row)}, project=project)
        return
    earlier = _earlier(connection, row.project_id, row.spider, job_id)
    items, usual = _items(row), _usual([_items(each) for each in earlier])
    if items == 0 or (usual is not None and items < _FEW * usual):
        data = {"job": _job(row), "usual_items": usual}
        emit(connection, EventKind.JOB_FEW_ITEMS, str(job_id), data, project=project)
    _report_slow(connection, row, _seconds(row), _usual([_seconds(each) for each in earlier]), listeners)


def find_slow_jobs(connection: Connection) -> list[int]:
    """Return the numbers of running jobs that take longer by now than some webhook permits. Does not write."""
    hooks = fetch(connection, WebhookRow, select(webhooks).where(webhooks.c.paused.is_(False)))
    wanted = [each for each in hooks if EventKind.JOB_SLOW.value in each.events]
    if not wanted:
        return []
    seconds = (DatabaseNow() - jobs.c.started_at).label("seconds")
    running = select(jobs.c.id, jobs.c.project_id, jobs.c.spider, seconds).where(
        jobs.c.state == JobState.RUNNING, jobs.c.started_at < DatabaseNow() - _SLOW_SECONDS
    )
    usual: dict[tuple[int, str], float | None] = {}
    found = []
    for row in connection.execute(running):
        listeners = [each for each in wanted if each.project_id in (None, row.project_id)]
        spider = row.project_id, row.spider
        if listeners and spider not in usual:
            usual[spider] = _usual([_seconds(each) for each in _earlier(connection, *spider, row.id)])
        if listeners and _that_find_slow(listeners, row.seconds, usual[spider]):
            found.append(row.id)
    return found


def report_slow_job(connection: Connection, job_id: int) -> None:
    """Write the event of a job that runs and is slow by now, unless it is written already."""
    running = select(jobs).where(jobs.c.id == job_id, jobs.c.state == JobState.RUNNING)
    row = fetch_first(connection, JobRow, running)
    if row is None or row.started_at is None:
        return  # its end reports it
    seconds = float(connection.execute(select(DatabaseNow())).scalar_one()) - row.started_at
    usual = _usual([_seconds(each) for each in _earlier(connection, row.project_id, row.spider, job_id)])
    _report_slow(connection, row, seconds, usual, _listeners(connection, row.project_id, EventKind.JOB_SLOW))


def _report_slow(
    connection: Connection, row: JobRow, seconds: float, usual: float | None, listeners: Sequence[WebhookRow]
) -> None:
    data = {"job": {**_job(row), "seconds": round(seconds, 3)}, "usual_seconds": usual}
    wanted = _that_find_slow(listeners, seconds, usual)
    _write(connection, wanted, EventKind.JOB_SLOW, str(row.id), data, project=row.project_id)


def _that_find_slow(listeners: Sequence[WebhookRow], seconds: float, usual: float | None) -> list[WebhookRow]:
    """Return the webhooks for which a job is slow that takes so long. `usual`: time of earlier jobs; None: unknown."""
    if usual is None or seconds < usual + _SLOW_SECONDS:
        return []
    return [
        each for each in listeners if EventKind.JOB_SLOW.value in each.events and seconds > each.slow_factor * usual
    ]


def report_broken_version(connection: Connection, version_id: int) -> None:
    """Write the event of a version that has just turned out to be broken."""
    row = fetch_one(connection, VersionRow, select(versions).where(versions.c.id == version_id))
    data = {"version": {"id": row.id, "name": row.name, "reason": row.reason[-2000:]}}
    emit(connection, EventKind.VERSION_BROKEN, str(version_id), data, project=row.project_id)


def report_lost_node(connection: Connection, name: str, lost: Sequence[tuple[int, int]]) -> None:
    """Write the events of a node that has just been lost. `lost`: numbers of its jobs and of their projects.

    A webhook of a project gets it if the project had jobs there.
    """
    key = uuid.uuid4().hex  # a node may be lost again; the transaction that loses it is run once
    for project in (None, *sorted({project for _, project in lost})):
        of_project = [job for job, owner in lost if project in (None, owner)][:100]
        listeners = _listeners(connection, project, EventKind.NODE_LOST)
        own = [each for each in listeners if each.project_id == project]
        _write(connection, own, EventKind.NODE_LOST, key, {"node": name, "jobs": of_project}, project=project)


def report_missed_schedule(connection: Connection, schedule: ScheduleRow, result: str) -> None:
    """Write the event of a schedule whose time was missed. `result`: what was done instead."""
    data = {"schedule": {"id": schedule.id, "name": schedule.name, "time": _iso(schedule.next_at), "result": result}}
    key = f"{schedule.id}:{schedule.next_at!r}"
    emit(connection, EventKind.SCHEDULE_MISSED, key, data, project=schedule.project_id)


def report_failed_crawl(connection: Connection, schedule: ScheduleRow, firing: CrawlFiring, reason: str) -> None:
    """Write the event of a firing whose crawl requests were not taken."""
    data = {"id": schedule.id, "name": schedule.name, "time": _iso(firing.instant), "result": f"failed: {reason}"}
    crawls = [f"{appid}/{crawlid}" for appid, crawlid in firing.crawls]
    data = {"schedule": data, "crawls": crawls}
    emit(connection, EventKind.SCHEDULE_FAILED, firing.key, data, project=schedule.project_id)


def _earlier(connection: Connection, project: int, spider: str, job: int) -> list[JobRow]:
    """Return the latest good jobs of a spider, without the one of this number."""
    same = (jobs.c.project_id == project, jobs.c.spider == spider, jobs.c.id != job)
    statement = select(jobs).where(*same, jobs.c.state == JobState.FINISHED, jobs.c.started_at.is_not(None))
    return fetch(connection, JobRow, statement.order_by(jobs.c.ended_at.desc()).limit(_COMPARED))


def _usual(values: Sequence[float]) -> float | None:
    return statistics.median(values) if len(values) >= _NEEDED else None


def _items(job: JobRow) -> int:
    return counter(job.stats or {}, "item_scraped_count")


def _seconds(job: JobRow) -> float:
    return job.ended_at - job.started_at if job.started_at and job.ended_at else 0.0


def _job(row: JobRow) -> dict[str, Any]:
    names = ("id", "name", "spider", "state", "reason", "attempt", "node", "schedule_id", "group_id")
    found = {name: getattr(row, name) for name in (*names, "exit_code", "signal", "finish_reason")}
    times = {name: _iso(getattr(row, name)) for name in ("created_at", "started_at", "ended_at")}
    versions = {"requested_version": row.version_name, "version": row.ran_version}
    return {**found, **versions, **times, "items": _items(row), "seconds": round(_seconds(row), 3)}


def _iso(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()
