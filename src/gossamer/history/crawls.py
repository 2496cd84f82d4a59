"""Statements on crawls: what the frontier said of them last, and pages of their list, newest first.

A crawl has one row, with the counters of its latest run. A run is named by its start and its number, because numbers
begin again where a frontier has lost its data. A later sample replaces an earlier one, in whatever order they arrive.
"""

import base64
import binascii
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, and_, delete, func, or_, select, tuple_, update

from gossamer.errors import BadInput
from gossamer.history.tables import CrawlRow, crawls, domains, ends, failures, rates
from gossamer.model.crawl import CrawlId, CrawlState
from gossamer.model.info import CrawlInfo
from gossamer.model.json_codec import encode_value
from gossamer.storage.sql.rows import fetch, fetch_first
from gossamer.storage.sql.search import PositionOf
from gossamer.storage.sql.storable import storable_text
from gossamer.storage.sql.upsert import insert_new, upsert

LOST = "lost"
"""State of a crawl that the frontier forgot before its end was recorded."""
_HIGHEST_ID = (1 << 63) - 1
_SEARCHED = 400
"""Characters of a name that are searched. PostgreSQL's index takes no long texts."""
_decode = msgspec.json.Decoder(CrawlInfo).decode
_MAX_DOMAINS = 100
"""Domains of a crawl that are remembered, the first that were seen."""


class PastCrawl(NamedTuple):
    """A crawl that is remembered."""

    info: CrawlInfo
    """Its latest run, as the frontier described it last, with its end. The state of one that is `lost` is finished."""
    state: str
    """State of the latest run: that of `info`, or `lost`."""


class CrawlFilter(NamedTuple):
    """Conditions on the crawls that are listed."""

    appid: str = ""
    """Only those of this application. Empty: of all."""
    state: str = ""
    """Only those in this state. Empty: in any."""
    text: str = ""
    """Only those with this text in application or name, in any case. Empty: any."""
    domain: str = ""
    """Only those of which requests were seen waiting on this domain. Empty: on any."""


def record(connection: Connection, infos: Sequence[CrawlInfo], *, now: float) -> None:
    """Record the state of crawls, as the frontier said it at about `now`. No crawl may be there twice."""
    upsert(connection, crawls, [_row(info, now) for info in infos], key=["token"], when=_is_later)


def _is_later(given: Any) -> ColumnElement[bool]:
    same_run = and_(given.started == crawls.c.started, given.run == crawls.c.run)
    # A sample that was taken before the end may arrive after it.
    goes_on = and_(given.done >= crawls.c.done, or_(crawls.c.ended.is_(None), given.ended.is_not(None)))
    is_later_run = or_(
        given.started > crawls.c.started, and_(given.started == crawls.c.started, given.run > crawls.c.run)
    )
    return or_(is_later_run, and_(same_run, goes_on))


def _row(info: CrawlInfo, now: float) -> dict[str, Any]:
    total = info.total()
    return {
        "token": info.crawl.token,
        "appid": info.crawl.appid,
        "crawlid": info.crawl.crawlid,
        "run": info.run,
        "state": info.state.value,
        "started": info.started,
        "ended": info.ended,
        "done": total.done,
        "info": encode_value(info).decode(),
        "search": str(info.crawl).lower()[:_SEARCHED],
        "sampled_at": now,
    }


def record_domains(connection: Connection, found: Mapping[CrawlId, Sequence[str]]) -> None:
    """Record domains of crawls, as many as are remembered."""
    counted = select(domains.c.token).where(domains.c.token.in_([crawl.token for crawl in found]))
    full = set(connection.scalars(counted.group_by(domains.c.token).having(func.count() >= _MAX_DOMAINS)))
    rows = [
        {"token": crawl.token, "domain": domain[:255]}
        for crawl, names in found.items()
        if crawl.token not in full
        for domain in dict.fromkeys(names[:_MAX_DOMAINS])
    ]
    if rows:
        insert_new(connection, domains, rows)


def record_lost(connection: Connection, found: Sequence[CrawlId], *, now: float) -> None:
    """Record that the frontier does not know these crawls any more. Those whose end is recorded stay as they are."""
    is_open = and_(crawls.c.token.in_([crawl.token for crawl in found]), crawls.c.ended.is_(None))
    connection.execute(update(crawls).where(is_open).values(state=LOST, ended=now))


def running_ids(connection: Connection, *, after: int, limit: int) -> tuple[list[CrawlId], int]:
    """Return a page of the crawls that are recorded as running, and the number after which the next one begins; 0: this
    is the last one."""
    query = select(crawls).where(crawls.c.state == CrawlState.RUNNING.value, crawls.c.id > after)
    rows = fetch(connection, CrawlRow, query.order_by(crawls.c.id).limit(limit))
    found = [CrawlId(row.appid, row.crawlid) for row in rows]
    return found, rows[-1].id if len(rows) == limit else 0


def find(connection: Connection, crawl: CrawlId) -> PastCrawl | None:
    """Return a crawl. None: it is not remembered."""
    row = fetch_first(connection, CrawlRow, select(crawls).where(crawls.c.token == crawl.token))
    return None if row is None else _past(row)


def _past(row: CrawlRow) -> PastCrawl:
    info = _decode(row.info)
    # The end may have been recorded after the last sample.
    info.ended = row.ended
    info.state = CrawlState.FINISHED if row.state == LOST else CrawlState(row.state)
    return PastCrawl(info, row.state)


def page(connection: Connection, chosen: CrawlFilter, *, cursor: str, limit: int) -> tuple[list[PastCrawl], str]:
    """Return a page of crawls, those that started last first, and the cursor of the next page; '' at the end. Raises
    BadInput for an invalid cursor."""
    query = _chosen(chosen)
    if cursor:
        query = query.where(tuple_(crawls.c.started, crawls.c.id) < tuple_(*_read_cursor(cursor)))
    order = (crawls.c.started.desc(), crawls.c.id.desc())
    # The inner query reads only an index, so it goes through many crawls fast.
    chosen_ids = query.order_by(*order).limit(limit + 1).subquery()
    whole = select(crawls).join(chosen_ids, chosen_ids.c.id == crawls.c.id).order_by(*order)
    rows = fetch(connection, CrawlRow, whole)
    return [_past(row) for row in rows[:limit]], _cursor(rows[limit - 1]) if len(rows) > limit else ""


def _chosen(chosen: CrawlFilter) -> Select[Any]:
    query = select(crawls.c.id)
    if chosen.appid:
        query = query.where(crawls.c.appid == chosen.appid)
    if chosen.state:
        query = query.where(crawls.c.state == chosen.state)
    if chosen.text:
        query = query.where(PositionOf(crawls.c.search, storable_text(chosen.text.lower())) > 0)
    if chosen.domain:
        on_domain = select(domains.c.token).where(domains.c.domain == chosen.domain.lower())
        query = query.where(crawls.c.token.in_(on_domain))
    return query


def _cursor(row: CrawlRow) -> str:
    return base64.urlsafe_b64encode(f"{row.started!r} {row.id}".encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[float, int]:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        started, _, number = text.partition(" ")
        position = float(started), int(number)
        if not 0 <= position[1] <= _HIGHEST_ID or not math.isfinite(position[0]):
            raise ValueError(text)
        return position
    except (binascii.Error, ValueError):
        raise BadInput("cursor: not a cursor of this list") from None


def forget(connection: Connection, crawl: CrawlId) -> None:
    """Delete all that is remembered of a crawl."""
    for table in (rates, failures, ends, domains, crawls):
        connection.execute(delete(table).where(table.c.token == crawl.token))
