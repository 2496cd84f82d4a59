"""Statements on rates: a row holds a crawl's counters as they were at a time in its minute.

Counters and not differences, so that a sample may be recorded twice, or by two processes. Rates are made when they are
read.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from gossamer.history.tables import RateRow, rates
from gossamer.model.crawl import CrawlId
from gossamer.model.info import CrawlInfo
from gossamer.storage.sql.rows import fetch
from gossamer.storage.sql.upsert import upsert

_LONGEST_STEP_SECONDS = 120.0
"""Time to which the pages between two samples are attributed at most. A crawl without changes is not sampled, so the
pages after a pause came at its end."""
_MAX_POINTS = 2000
"""Points that one answer has."""


class RatePoint(NamedTuple):
    """Speed and queue of a crawl at a time."""

    at: float
    pages_per_second: float
    """Since the point before."""
    failures_per_second: float
    fetched: int
    failed: int
    waiting: int
    leased: int


def record(connection: Connection, infos: Sequence[CrawlInfo], *, now: float) -> None:
    """Record the counters of crawls, as the frontier said them at about `now`. No crawl may be there twice."""
    upsert(connection, rates, [_row(info, now) for info in infos], key=["token", "minute"], when=_is_later)


def _is_later(given: Any) -> ColumnElement[bool]:
    done, done_before = (part.fetched + part.failed + part.dropped for part in (given, rates.c))
    return or_(given.started > rates.c.started, and_(given.started == rates.c.started, done >= done_before))


def _row(info: CrawlInfo, now: float) -> dict[str, Any]:
    total = info.total()
    at = now if info.ended is None else info.ended
    return {
        "token": info.crawl.token,
        "minute": int(at // 60),
        "at": at,
        "started": info.started,
        "fetched": total.fetched,
        "failed": sum(total.failed.values()),
        "dropped": sum(total.dropped.values()),
        "waiting": total.waiting,
        "leased": total.leased,
    }


def of_crawl(connection: Connection, crawl: CrawlId, *, started: float, limit: int = _MAX_POINTS) -> list[RatePoint]:
    """Return the points of the run that began at `started`, the earliest first; of a long run, fewer than there are."""
    of_run = and_(rates.c.token == crawl.token, rates.c.started == started)
    first, last = connection.execute(select(func.min(rates.c.minute), func.max(rates.c.minute)).where(of_run)).one()
    if first is None:
        return []
    # The last sample of each group of minutes.
    step = (last - first) // limit + 1
    group = rates.c.minute // step
    chosen = select(func.max(rates.c.minute)).where(of_run).group_by(group)
    query = select(rates).where(of_run, rates.c.minute.in_(chosen)).order_by(rates.c.minute)
    points: list[RatePoint] = []
    before = (started, 0, 0)
    for row in fetch(connection, RateRow, query):
        at, fetched, failed = before
        seconds = max(1.0, min(row.at - at, max(_LONGEST_STEP_SECONDS, step * 60.0)))
        speed = max(0, row.fetched - fetched) / seconds
        failing = max(0, row.failed - failed) / seconds
        points.append(RatePoint(row.at, speed, failing, row.fetched, row.failed, row.waiting, row.leased))
        before = (row.at, row.fetched, row.failed)
    return points
