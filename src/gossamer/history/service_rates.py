"""Statements on the speed of the whole service over time. Rows are kept for a day, whatever the history's own time."""

from typing import Final, NamedTuple

from sqlalchemy import Connection, delete, select

from gossamer.history.tables import ServiceRateRow, service_rates
from gossamer.storage.sql.rows import fetch
from gossamer.storage.sql.upsert import upsert

KEPT_MINUTES: Final = 24 * 60


class ServiceRate(NamedTuple):
    """Speed of all workers in a minute, and what waited for them."""

    minute: int
    """Minutes since 1970."""
    pages_per_second: float
    """Mean of some samples."""
    waiting: int
    """Requests that waited, by the last sample."""


def record(connection: Connection, rate: ServiceRate) -> None:
    """Record a minute, and delete what is too old. May be repeated."""
    upsert(connection, service_rates, [rate._asdict()], key=["minute"])
    connection.execute(delete(service_rates).where(service_rates.c.minute <= rate.minute - KEPT_MINUTES))


def latest(connection: Connection, limit: int) -> list[ServiceRateRow]:
    """Return the latest minutes, the earliest of them first."""
    query = select(service_rates).order_by(service_rates.c.minute.desc()).limit(limit)
    return fetch(connection, ServiceRateRow, query)[::-1]
