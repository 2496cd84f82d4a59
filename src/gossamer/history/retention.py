"""Statements that bound the history: what is older than it is kept goes, a small batch at a time."""

from typing import Final, NamedTuple

from sqlalchemy import Connection, delete, func, select, tuple_

from gossamer.history.tables import crawls, domains, ends, failures, rates
from gossamer.storage.sql.batches import delete_batch

BATCH: Final = 500
"""Rows that one transaction deletes of a table. Writers wait meanwhile."""
_FINE_SECONDS: Final = 2 * 86400.0
"""Age up to which a crawl has a rate for each minute. Older ones are one for each hour."""


class RatePosition(NamedTuple):
    """A row of the rates, to go on after."""

    minute: int = 0
    token: str = ""


def sweep(connection: Connection, *, before: float) -> bool:
    """Delete a batch of what is older than `before`. Crawls that run stay. Return whether there may be more."""
    old = select(crawls.c.token).where(crawls.c.ended < before).order_by(crawls.c.ended).limit(BATCH)
    tokens = list(connection.scalars(old))
    most = 0
    if tokens:
        for table in (domains, failures):  # bounded for each crawl
            connection.execute(delete(table).where(table.c.token.in_(tokens)))
        # The other tables may have many rows of a crawl, which goes with the last of them.
        for table, order in ((rates, rates.c.minute), (ends, ends.c.at)):
            of_crawls = table.c.token.in_(tokens)
            most = max(most, delete_batch(connection, table, of_crawls, limit=BATCH, order=order))
        if most < BATCH:
            connection.execute(delete(crawls).where(crawls.c.token.in_(tokens)))
    for table, which, order in (
        (ends, ends.c.at < before, ends.c.at),
        (failures, failures.c.at < before, failures.c.at),
        (rates, rates.c.minute < int(before // 60), rates.c.minute),
    ):
        most = max(most, delete_batch(connection, table, which, limit=BATCH, order=order))
    return max(most, len(tokens)) == BATCH


def thin_rates(connection: Connection, *, now: float, after: RatePosition) -> tuple[RatePosition, bool]:
    """Look at a batch of old rates after a position, and delete all but the last one of each hour and crawl. Return the
    position to go on after, and whether there may be more that are old enough."""
    position = tuple_(rates.c.minute, rates.c.token)
    old = rates.c.minute < int((now - _FINE_SECONDS) // 3600) * 60
    query = select(rates.c.minute, rates.c.token).where(old, position > tuple_(*after))
    rows = connection.execute(query.order_by(rates.c.minute, rates.c.token).limit(BATCH)).all()
    for minute, token in rows:
        end_of_hour = minute // 60 * 60 + 59
        same_hour = (rates.c.token == token, rates.c.minute > minute, rates.c.minute <= end_of_hour)
        if connection.scalar(select(func.count()).select_from(rates).where(*same_hour)):
            connection.execute(delete(rates).where(rates.c.token == token, rates.c.minute == minute))
    return RatePosition(*rows[-1]) if rows else after, len(rows) == BATCH
