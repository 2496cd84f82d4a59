"""Schedules for tests, without a request to the platform."""

from sqlalchemy import Connection

from gossamer_platform.schedules.firing import start_schedule
from gossamer_platform.state import schedules

_EVERY_DAY = {
    "kind": "every",
    "rule": "86400.0",
    "time_zone": "UTC",
    "start_at": 1000.0,
    "jitter": 0.0,
    "missed": "skip",
    "if_running": "run",
    "spider": "",
    "arguments": {},
    "settings": {},
    "priority": 0.0,
    "policy": {},
}


def add_schedule(connection: Connection, name: str, **columns: object) -> int:
    """Add a schedule of the project shop that is due once a day, and start it. Return its number."""
    number = schedules.add_schedule(connection, "shop", name, {**_EVERY_DAY, **columns})
    assert number is not None
    start_schedule(connection, number)
    return number
