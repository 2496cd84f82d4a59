"""Statements that number the spiders of a project and the jobs of a spider. Scrapy Cloud's clients name jobs by these
numbers.

A job's key is PROJECT/SPIDER/JOB, all three whole numbers. A spider gets its number when it is first asked for or its
first job is added; a job gets the next number of its spider. Fixed: a number is never given twice within its project or
spider, because clients keep keys.
"""

from sqlalchemy import Connection, func, insert, select, update

from gossamer_platform.state.tables import spiders


def spider_number(connection: Connection, project: int, name: str) -> int:
    """Return the number of a spider, and give it one if it has none. The caller has locked the project."""
    mine = (spiders.c.project_id == project, spiders.c.name == name)
    found = connection.scalar(select(spiders.c.number).where(*mine))
    if found is None:
        last = connection.scalar(select(func.max(spiders.c.number)).where(spiders.c.project_id == project))
        found = (last or 0) + 1
        connection.execute(insert(spiders).values(project_id=project, number=found, name=name))
    return int(found)


def next_job_number(connection: Connection, project: int, spider: str) -> int:
    """Return the number of the spider's next job. The caller has locked the project."""
    mine = (spiders.c.project_id == project, spiders.c.name == spider)
    step = update(spiders).where(*mine).values(last_job=spiders.c.last_job + 1)
    if not connection.execute(step).rowcount:
        spider_number(connection, project, spider)
        connection.execute(step)
    return int(connection.execute(select(spiders.c.last_job).where(*mine)).scalar_one())


def spider_numbers(connection: Connection, project: int) -> dict[str, int]:
    """Return the numbers of the project's spiders by name."""
    found = connection.execute(select(spiders.c.name, spiders.c.number).where(spiders.c.project_id == project))
    return {row.name: row.number for row in found}
