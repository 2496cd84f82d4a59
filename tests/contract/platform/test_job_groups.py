"""Job groups and inputs: all jobs or none, an input of the project's own, and nothing that is needed is deleted."""

import pytest
from sqlalchemy import Connection, func, insert, select, update

from gossamer.errors import BadInput
from gossamer_platform.state import groups, jobs, projects
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.groups import NewGroup
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.tables import inputs, job_groups
from gossamer_platform.state.tables import jobs as job_table
from gossamer_platform.state.tables import projects as project_table

_LONG = b"0123456789abcdef" * 100_000
"""Content of more than one row."""


def _split(connection: Connection, *contents: bytes) -> int:
    digests = [groups.add_input(connection, "shop", "part.csv", content) for content in contents]
    return groups.add_group(connection, NewGroup(NewJob("shop", "a", "sharded"), digests, "file"))


async def test_an_input_is_kept_once_and_read_in_parts(database: StateDatabase) -> None:
    def add(connection: Connection) -> str:
        digest = groups.add_input(connection, "shop", "part.csv", _LONG)
        assert groups.add_input(connection, "shop", "other.csv", _LONG) == digest
        return digest

    digest = await database.write(add)

    def read(connection: Connection) -> bytes:
        found = groups.find_input(connection, "shop", digest)
        assert found is not None
        assert (found.name, found.length) == ("part.csv", len(_LONG))
        content = b""
        while part := groups.read_input(connection, found.id, len(content)):
            content += part
        return content

    assert await database.read(read) == _LONG
    assert await database.read(lambda c: groups.find_input(c, "news", digest)) is None


async def test_a_group_with_an_unknown_input_makes_no_job(database: StateDatabase) -> None:
    def add(connection: Connection) -> None:
        known = groups.add_input(connection, "shop", "part", b"x")
        groups.add_group(connection, NewGroup(NewJob("shop", "a", "sharded"), [known, "0" * 64]))

    with pytest.raises(BadInput, match="no input 000"):
        await database.write(add)
    assert await database.read(lambda c: c.scalar(select(func.count()).select_from(job_table))) == 0


async def test_the_jobs_of_a_group_are_counted_and_stopped_together(database: StateDatabase) -> None:
    number = await database.write(lambda c: _split(c, b"1", b"2", b"2"))
    other = await database.write(lambda c: _split(c, b"1"))
    assert await database.read(lambda c: groups.group_states(c, [number, other])) == {
        number: {"pending": 3},
        other: {"pending": 1},
    }
    await database.write(lambda c: groups.stop_group(c, number, signal=15))
    assert await database.read(lambda c: groups.group_states(c, [number])) == {number: {"cancelled": 3}}
    page = await database.read(lambda c: groups.group_page(c, "shop", before=None, limit=1))
    assert [row.id for row in page] == [other]


async def test_processes_of_a_group_share_a_crawl_of_their_own(database: StateDatabase) -> None:
    def add(connection: Connection) -> list[dict[str, str]]:
        number = groups.add_group(connection, NewGroup(NewJob("shop", "a", "walk"), processes=2))
        rows = jobs.job_page(connection, jobs.JobFilter(group=number), before=None, limit=10)
        assert all(row.shares_frontier for row in rows)
        return [row.settings for row in rows]

    one, other = await database.write(add), await database.write(add)
    assert one[0] == one[1]
    assert one[0]["GOSSAMER_CRAWL_ID"] != other[0]["GOSSAMER_CRAWL_ID"]


async def test_inputs_and_groups_go_with_their_jobs(database: StateDatabase) -> None:
    await database.write(lambda c: _split(c, _LONG))
    await database.write(lambda c: groups.add_input(c, "shop", "fresh", b"just sent"))

    def age(connection: Connection) -> None:
        connection.execute(update(inputs).where(inputs.c.name == "part.csv").values(created_at=0))
        connection.execute(update(job_groups).values(created_at=0))
        connection.execute(update(project_table).values(created_at=0))
        groups.forget_groups(connection)
        projects.forget_versions(connection)

    def left(connection: Connection) -> tuple[int, ...]:
        tables = (project_table, job_groups, inputs)
        return tuple(connection.scalar(select(func.count()).select_from(table)) or 0 for table in tables)

    await database.write(age)
    assert await database.read(left) == (1, 1, 2)
    await database.write(lambda c: c.execute(job_table.delete()))
    await database.write(age)
    assert await database.read(left) == (1, 0, 1)  # a client may be about to use what it has just sent
    await database.write(lambda c: c.execute(update(inputs).values(created_at=0)))
    await database.write(age)
    assert await database.read(left) == (0, 0, 0)


async def test_more_inputs_are_deleted_than_a_statement_has_parameters(database: StateDatabase) -> None:
    await database.write(lambda c: _split(c, b"used"))

    def forget(connection: Connection) -> int:
        owner = projects.project_id(connection, "shop")
        common = {"project_id": owner, "name": "old", "length": 0, "created_at": 0}
        connection.execute(insert(inputs), [{**common, "digest": str(number)} for number in range(70_000)])
        groups.forget_groups(connection)
        return connection.scalar(select(func.count()).select_from(inputs)) or 0

    assert await database.write(forget) == 1
