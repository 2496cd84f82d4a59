"""Statements on examples of failed requests: the latest of each reason."""

from collections.abc import Sequence

from sqlalchemy import Connection, and_, delete, select

from gossamer.history.tables import FailureRow, failures
from gossamer.model.crawl import CrawlId
from gossamer.model.messages.history import RequestFailed
from gossamer.storage.sql.rows import fetch
from gossamer.storage.sql.upsert import upsert

EXAMPLES = 10
"""Examples of one reason that a crawl keeps."""
_REASONS = 100
"""Reasons of which a crawl's examples are returned."""


def record(connection: Connection, messages: Sequence[RequestFailed]) -> None:
    """Record examples. One of a request replaces an earlier one of the same request."""
    by_request = {(message.crawl.token, message.request_id[:64]): message for message in messages}
    rows = [
        {
            "token": token,
            "request_id": request_id,
            "spider": message.spider,
            "reason": message.reason[:100],
            "url": message.url,
            "status": message.status,
            "error": message.error,
            "at": message.at,
        }
        for (token, request_id), message in by_request.items()
    ]
    if not rows:
        return
    upsert(connection, failures, rows, key=["token", "request_id"])
    for token, reason in {(row["token"], row["reason"]) for row in rows}:
        _keep_latest(connection, str(token), str(reason))


def _keep_latest(connection: Connection, token: str, reason: str) -> None:
    """Delete all but the latest examples of a reason."""
    same = and_(failures.c.token == token, failures.c.reason == reason)
    latest = select(failures.c.request_id).where(same)
    latest = latest.order_by(failures.c.at.desc(), failures.c.request_id).limit(EXAMPLES)
    kept = list(connection.scalars(latest))
    if len(kept) == EXAMPLES:
        connection.execute(delete(failures).where(same, failures.c.request_id.not_in(kept)))


def of_url(connection: Connection, crawl: CrawlId, url: str) -> list[FailureRow]:
    """Return the examples of a crawl that are about this URL, the latest first."""
    query = select(failures).where(failures.c.token == crawl.token, failures.c.url == url)
    return fetch(connection, FailureRow, query.order_by(failures.c.at.desc()).limit(EXAMPLES))


def of_crawl(connection: Connection, crawl: CrawlId, *, since: float) -> dict[str, list[FailureRow]]:
    """Return examples of a crawl's failures from this time on, by reason, the latest first."""
    query = select(failures).where(failures.c.token == crawl.token, failures.c.at >= since)
    query = query.order_by(failures.c.at.desc(), failures.c.request_id).limit(EXAMPLES * _REASONS)
    found: dict[str, list[FailureRow]] = {}
    for row in fetch(connection, FailureRow, query):
        found.setdefault(row.reason, []).append(row)
    return found
