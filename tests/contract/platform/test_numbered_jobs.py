"""Numbers of spiders and jobs, tags, and the search of jobs, on both databases."""

from typing import Any

from sqlalchemy import Connection

from gossamer_platform.lifecycle import JobState
from gossamer_platform.state import job_search, jobs, spiders, tags
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.job_search import JobSearch
from gossamer_platform.state.jobs import NewJob
from gossamer_platform.state.projects import project_id
from gossamer_platform.state.tables import jobs as job_table

_ALL = sorted(JobState)


def _add(connection: Connection) -> dict[str, Any]:
    """Two jobs of one spider, and one of another; the first has two tags."""
    rows = [("quotes", "a", ["x", "y"]), ("quotes", "b", ["y"]), ("authors", "c", [])]
    numbers = [jobs.add_job(connection, NewJob("shop", spider, name, tags=given)) for spider, name, given in rows]
    return {"project": project_id(connection, "shop"), "jobs": numbers}


async def test_jobs_are_numbered_within_their_spider(database: StateDatabase) -> None:
    added = await database.write(_add)
    project = added["project"]
    assert await database.read(lambda c: spiders.spider_numbers(c, project)) == {"quotes": 1, "authors": 2}
    found = [
        await database.read(lambda c, s=s, j=j: job_search.find_numbered_job(c, project, s, j))
        for s, j in [(1, 2), (2, 1)]
    ]
    assert [row.name for row in found if row is not None] == ["b", "c"]
    assert await database.read(lambda c: job_search.find_numbered_job(c, project, 2, 2)) is None


async def test_the_number_of_a_deleted_job_is_not_given_again(database: StateDatabase) -> None:
    added = await database.write(_add)
    await database.write(lambda c: c.execute(job_table.delete().where(job_table.c.id == added["jobs"][1])))
    number = await database.write(lambda c: jobs.add_job(c, NewJob("shop", "quotes", "d")))
    row = await database.read(lambda c: jobs.find_job(c, number))
    assert row is not None
    assert row.spider_job == 3
    assert await database.read(lambda c: tags.tags_of(c, added["jobs"][1:2])) == {added["jobs"][1]: []}


async def test_jobs_are_found_by_tags_numbers_and_states(database: StateDatabase) -> None:
    added = await database.write(_add)
    every = JobSearch(added["project"], _ALL)

    async def names(wanted: JobSearch, skip: int = 0, limit: int = 10) -> list[str]:
        rows = await database.read(lambda c: job_search.search_jobs(c, wanted, skip=skip, limit=limit))
        return [row.name for row in rows]

    assert await names(every) == ["c", "b", "a"]
    assert await names(every, skip=1, limit=1) == ["b"]
    assert await names(every._replace(has_tags=["x", "y"])) == ["b", "a"]
    assert await names(every._replace(lacks_tags=["x"])) == ["c", "b"]
    assert await names(every._replace(spider_number=1)) == ["b", "a"]
    assert await names(every._replace(spider_jobs=[(1, 1), (2, 1)])) == ["c", "a"]
    assert await names(every._replace(spider_jobs=[])) == []
    assert await names(every._replace(states=[JobState.FINISHED])) == []
    assert await names(every._replace(since=10.0**12)) == []
    assert await database.read(lambda c: job_search.count_found(c, every._replace(spider="quotes"))) == 2
    latest = await database.read(lambda c: job_search.latest_of_spiders(c, every, skip=0, limit=10))
    assert [row.name for row in latest] == ["b", "c"]
    counts = await database.read(lambda c: job_search.count_states(c, [added["project"]]))
    assert counts == {added["project"]: {"pending": 3}}


async def test_tags_are_changed_once_however_often_it_is_asked(database: StateDatabase) -> None:
    added = await database.write(_add)
    for _ in range(2):
        await database.write(lambda c: tags.change_tags(c, added["jobs"], add=["z", "z"], remove=["y"]))
    found = await database.read(lambda c: tags.tags_of(c, added["jobs"]))
    assert list(found.values()) == [["x", "z"], ["z"], ["z"]]
