"""Statements on turns: tasks that one process does at a time, so that several do not read the same from the frontier.

A turn saves work, and nothing depends on it: two processes that both believe to have it write the same rows.
"""

from sqlalchemy import Connection, delete, or_

from gossamer.history.tables import turns
from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.upsert import insert_into


def take(connection: Connection, name: str, *, owner: str, seconds: float) -> bool:
    """Take or keep a turn for some seconds. Return whether `owner` has it now."""
    until = DatabaseNow() + seconds
    statement = insert_into(connection, turns).values(name=name, owner=owner, until=until)
    is_free = or_(turns.c.owner == owner, turns.c.until < DatabaseNow())
    taken = statement.on_conflict_do_update(
        index_elements=["name"], set_={"owner": owner, "until": until}, where=is_free
    )
    return connection.execute(taken.returning(turns.c.name)).first() is not None


def give_back(connection: Connection, name: str, *, owner: str) -> None:
    """End the turn of `owner`, so that another process need not wait for its end."""
    connection.execute(delete(turns).where(turns.c.name == name, turns.c.owner == owner))
