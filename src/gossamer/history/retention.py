"""Statements that bound the history: what is older than it is kept goes, a small batch at a time."""

from typing import Final, NamedTuple

from sqlalchemy import Connection, delete, exists, func, select, tuple_

from gossamer.history.tables import changes, crawls, domains, ends, failures, rates
from gossamer.storage.sql.batches import delete_batch

BATCH: Final = 500
"""Rows that one transaction deletes or looks at. Writers wait meanwhile."""
_CRAWLS: Final = 50
"""Crawls whose rows one transaction looks for."""
MAX_CHANGES: Final = 1_000_000
"""Entries of the audit that are kept, the latest ones: programs that submit URL by URL make many."""
_FINE_SECONDS: Final = 2 * 86400.0
"""Age up to which a crawl has a rate for each minute. Older ones are one for each hour."""


class RatePosition(NamedTuple):
    """A row of the rates, to go on after."""

    minute: int = 0
    token: str = ""


def sweep(connection: Connection, *, before: float) -> bool:
    """Delete up to `BATCH` rows of what is older than `before`. Crawls that run stay. Return whether there may be
    more."""
    oldest = select(crawls.c.token).where(crawls.c.ended < before).order_by(crawls.c.ended).limit(_CRAWLS)
    tokens = list(connection.scalars(oldest))
    # A crawl goes with the last of its rows, because no other statement would find them.
    of_crawls = [
        (table, table.c.token.in_(tokens), table.c.token) for table in (domains, failures, rates, ends, crawls)
    ]
    by_age = [
        (ends, ends.c.at < before, ends.c.at),
        (failures, failures.c.at < before, failures.c.at),
        (rates, rates.c.minute < int(before // 60), rates.c.minute),
        (changes, changes.c.at < before, changes.c.at),
        (changes, changes.c.id <= _latest_change(connection) - MAX_CHANGES, changes.c.id),
    ]
    left = BATCH
    for table, which, order in [*(of_crawls if tokens else []), *by_age]:
        left -= delete_batch(connection, table, which, limit=left, order=order)
        if not left:
            return True
    return len(tokens) == _CRAWLS


def _latest_change(connection: Connection) -> int:
    return connection.scalar(select(func.max(changes.c.id))) or 0


def thin_rates(connection: Connection, *, now: float, after: RatePosition) -> tuple[RatePosition, bool]:
    """Look at a batch of old rates after a position, and delete all but the last one of each hour and crawl. Return the
    position to go on after, and whether there may be more that are old enough."""
    position = tuple_(rates.c.minute, rates.c.token)
    old = rates.c.minute < int((now - _FINE_SECONDS) // 3600) * 60
    later = rates.alias()
    end_of_hour = rates.c.minute - rates.c.minute % 60 + 59
    of_hour = (later.c.token == rates.c.token, later.c.minute > rates.c.minute, later.c.minute <= end_of_hour)
    query = select(rates.c.minute, rates.c.token, exists().where(*of_hour)).where(old, position > tuple_(*after))
    rows = connection.execute(query.order_by(rates.c.minute, rates.c.token).limit(BATCH)).all()
    if superfluous := [(minute, token) for minute, token, has_later in rows if has_later]:
        connection.execute(delete(rates).where(position.in_(superfluous)))
    return RatePosition(*rows[-1][:2]) if rows else after, len(rows) == BATCH
