"""Deletion in batches, and insertion of rows that may be there, on both databases."""

from pathlib import Path

from sqlalchemy import Connection, func, select

from gossamer.history.database import HistoryDatabase
from gossamer.history.tables import rates
from gossamer.storage.sql.batches import delete_batch
from gossamer.storage.sql.upsert import insert_new, upsert


def row(token: str, minute: int, fetched: int) -> dict[str, object]:
    return {
        "token": token, "minute": minute, "at": 0.0, "started": 0.0, "fetched": fetched, "failed": 0, "dropped": 0,
        "waiting": 0, "leased": 0,
    }  # fmt: skip


async def test_rows_are_inserted_replaced_and_deleted_some_at_a_time(url: str, tmp_path: Path) -> None:
    database = HistoryDatabase(url)
    await database.migrate()

    def work(connection: Connection) -> None:
        rows = [row(token, minute, 1) for token in "ab" for minute in range(50)]
        insert_new(connection, rates, rows)
        insert_new(connection, rates, [row("a", 3, 9), row("c", 3, 9)])  # one is there, and stays as it is
        upsert(connection, rates, [row("a", 4, 9), row("a", 5, 0)], key=["token", "minute"],
               when=lambda given: given.fetched > rates.c.fetched)  # fmt: skip
        found = dict(connection.execute(select(rates.c.minute, rates.c.fetched).where(rates.c.token == "a")).all())
        assert [found[minute] for minute in (3, 4, 5)] == [1, 9, 1]

    await database.write(work)

    def delete(connection: Connection) -> int:
        return delete_batch(connection, rates, rates.c.minute < 20, limit=15, order=rates.c.minute)

    deleted = [await database.write(delete) for _ in range(4)]
    assert deleted == [15, 15, 11, 0]
    left = await database.read(lambda c: c.execute(select(func.min(rates.c.minute), func.count())).one())
    assert tuple(left) == (20, 60)
    await database.close()
