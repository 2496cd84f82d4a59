"""Statements on the ends of runs. Each is inserted once, by the id of its event."""

from collections.abc import Sequence

from sqlalchemy import Connection, and_, select, update

from gossamer.history.tables import EndRow, crawls, ends
from gossamer.model.crawl import CrawlId
from gossamer.model.messages.history import CrawlEnded
from gossamer.storage.sql.rows import fetch
from gossamer.storage.sql.upsert import insert_new

_SHOWN = 100
"""Ends of one crawl that are returned, the latest."""


def record(connection: Connection, messages: Sequence[CrawlEnded]) -> None:
    """Record ends. One that is recorded stays as it is."""
    rows = [
        {
            "event_id": end.event_id,
            "token": end.crawl.token,
            "run": end.run,
            "spider": end.spider,
            "kind": end.kind,
            "at": end.at,
            "purged": end.purged,
        }
        for end in {end.event_id: end for end in messages}.values()
    ]
    if rows:
        insert_new(connection, ends, rows)
    for end in messages:
        if end.spider:
            continue
        # For a crawl that the frontier has forgotten since, and whose last sample was taken before its end.
        is_its_run = and_(crawls.c.token == end.crawl.token, crawls.c.run == end.run, crawls.c.started <= end.at)
        is_open = and_(is_its_run, crawls.c.ended.is_(None))
        connection.execute(update(crawls).where(is_open).values(state=end.kind, ended=end.at))


def of_crawl(connection: Connection, crawl: CrawlId) -> list[EndRow]:
    """Return the ends of a crawl's runs and of their parts, the latest first."""
    query = select(ends).where(ends.c.token == crawl.token).order_by(ends.c.at.desc(), ends.c.event_id)
    return fetch(connection, EndRow, query.limit(_SHOWN))
