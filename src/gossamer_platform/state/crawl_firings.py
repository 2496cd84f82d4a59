"""Statements on the firings of schedules that submit crawl requests: add, lease, record, list, forget.

A firing is one instant of such a schedule. It is written in the transaction that steps the schedule, so no instant is
lost or comes twice; a manager then leases it and submits its requests. Its key, which the crawl service gets with each
attempt, follows from the schedule and the instant: the service submits once, however often a manager was killed or an
answer was lost. Fixed: how the key is made, and that a result is recorded only while the lease is the caller's.
"""

import uuid
from typing import Any, Final

from sqlalchemy import Connection, insert, select, update

from gossamer.storage.sql.batches import delete_batch
from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import fetch, fetch_one
from gossamer_platform.state.events import report_failed_crawl
from gossamer_platform.state.tables import CrawlFiring, ScheduleRow, crawl_firings, schedules

GIVE_UP_SECONDS: Final = 1800.0
"""Time after which a firing has failed that the crawl service did not take. Must be less than the hour for which the
service remembers a key. The docs name it."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds before the second attempt, and between two at most; each pause is twice the one before."""
_LEASE_SECONDS: Final = 60.0
"""Time that a manager has for an attempt. Must be more than the time limit of a request."""
_FORGET_SECONDS: Final = 7 * 86400.0
"""Age from which a firing that has ended is deleted. The docs name it."""
_FORGOTTEN_AT_ONCE: Final = 5000
"""Rows that one call deletes. Writers wait meanwhile."""
_MAX_NAMED: Final = 100
"""Crawls of a firing that are shown."""
_NAMES: Final = uuid.UUID("5b0d6b0e-64b1-4f0f-8f2c-0a2b8a4d3c55")
"""Name space of keys. Fixed: another one would let a firing be submitted twice."""
SUBMITTING: Final = "submitting its crawl requests"
"""Result of a schedule while its firing waits for the crawl service."""


def add_firing(connection: Connection, schedule: ScheduleRow, *, instant: float, name: str = "") -> CrawlFiring:
    """Add a firing of a schedule, and return it; one that is known already stays as it is. `name`: identifies one that
    was asked for, beside those of the schedule's instants."""
    # The creation is part of the key: another database may have a schedule of the same number.
    key = uuid.uuid5(_NAMES, f"{schedule.id}:{schedule.created_at!r}:{name or repr(instant)}").hex
    if connection.scalar(select(crawl_firings.c.id).where(crawl_firings.c.key == key)) is None:
        requests = schedule.crawl or []
        crawls = dict.fromkeys((request["appid"], request["crawlid"]) for request in requests)
        values = {"schedule_id": schedule.id, "instant": instant, "key": key, "state": "waiting"}
        values |= {"requests": requests, "crawls": list(map(list, crawls))[:_MAX_NAMED]}
        values |= {"next_at": DatabaseNow(), "created_at": DatabaseNow()}
        connection.execute(insert(crawl_firings).values(**values))
    return fetch_one(connection, CrawlFiring, select(crawl_firings).where(crawl_firings.c.key == key))


def has_due(connection: Connection) -> bool:
    """Return whether `lease_firings` would find any. Cheaper, because it does not write."""
    return connection.execute(select(crawl_firings.c.id).where(*_due()).limit(1)).first() is not None


def _due() -> tuple[Any, ...]:
    now = DatabaseNow()
    return crawl_firings.c.state == "waiting", crawl_firings.c.next_at <= now, crawl_firings.c.leased_until <= now


def lease_firings(connection: Connection, most: int) -> list[CrawlFiring]:
    """Lease firings that are due, the oldest first, and return them."""
    chosen = select(crawl_firings.c.id).where(*_due()).order_by(crawl_firings.c.next_at, crawl_firings.c.id)
    numbers = connection.scalars(chosen.limit(most).with_for_update(skip_locked=True)).all()
    if not numbers:
        return []
    leased = {"lease": uuid.uuid4().hex, "leased_until": DatabaseNow() + _LEASE_SECONDS}
    leased["attempts"] = crawl_firings.c.attempts + 1
    these = crawl_firings.c.id.in_(numbers)
    connection.execute(update(crawl_firings).where(these).values(**leased))
    return fetch(connection, CrawlFiring, select(crawl_firings).where(these).order_by(crawl_firings.c.id))


def record_submitted(connection: Connection, firing: CrawlFiring, status: int, result: str) -> None:
    """Record that the crawl service has taken the requests of a leased firing. `result`: what it did with them."""
    _end(connection, firing, "submitted", status, result)


def record_failure(
    connection: Connection, firing: CrawlFiring, error: str, status: int | None, *, is_final: bool
) -> None:
    """Record that an attempt failed. It is made again, unless that is useless (`is_final`) or has been tried for too
    long: then the firing has failed, which is reported."""
    pause = min(_FIRST_PAUSE * 2 ** min(firing.attempts - 1, 20), _LONGEST_PAUSE)
    age = float(connection.execute(select(DatabaseNow())).scalar_one()) - firing.created_at
    if is_final or age + pause > GIVE_UP_SECONDS:
        if _end(connection, firing, "failed", status, error):
            schedule = fetch_one(connection, ScheduleRow, select(schedules).where(schedules.c.id == firing.schedule_id))
            report_failed_crawl(connection, schedule, firing, error)
        return
    values = {"result": _storable(error), "status": status, "leased_until": 0.0, "next_at": DatabaseNow() + pause}
    connection.execute(update(crawl_firings).where(*_mine(firing)).values(**values))


def _end(connection: Connection, firing: CrawlFiring, state: str, status: int | None, result: str) -> bool:
    """End a leased firing. Return False if it is not the caller's any more."""
    result = _storable(result)
    values: dict[str, Any] = {
        "state": state,
        "status": status,
        "result": result,
        "requests": [],
        "ended_at": DatabaseNow(),
    }
    if not connection.execute(update(crawl_firings).where(*_mine(firing)).values(**values)).rowcount:
        return False
    # A later instant may have come meanwhile; the schedule shows that one.
    latest = schedules.c.id == firing.schedule_id, schedules.c.last_at == firing.instant
    shown = f"failed: {result}" if state == "failed" else result
    connection.execute(update(schedules).where(*latest).values(last_result=shown))
    return True


def _storable(text: str) -> str:
    """Return the text of an answer without characters that a database refuses, and not too long."""
    return text[:1000].replace("\0", "?").encode("utf-8", "replace").decode()


def _mine(firing: CrawlFiring) -> tuple[Any, ...]:
    same = crawl_firings.c.id == firing.id, crawl_firings.c.lease == firing.lease
    return (*same, crawl_firings.c.state == "waiting")


def firing_page(connection: Connection, schedule: int, *, before: int | None, limit: int) -> list[CrawlFiring]:
    """Return firings of a schedule, the latest first."""
    statement = select(crawl_firings).where(crawl_firings.c.schedule_id == schedule)
    statement = statement if before is None else statement.where(crawl_firings.c.id < before)
    return fetch(connection, CrawlFiring, statement.order_by(crawl_firings.c.id.desc()).limit(limit))


def forget_firings(connection: Connection) -> None:
    """Delete some of the old firings that have ended. The next call goes on."""
    old = crawl_firings.c.ended_at < DatabaseNow() - _FORGET_SECONDS
    delete_batch(connection, crawl_firings, old, limit=_FORGOTTEN_AT_ONCE, order=crawl_firings.c.ended_at)
