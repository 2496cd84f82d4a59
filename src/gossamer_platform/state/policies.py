"""Statements on policies: limits of the jobs of one spider, which replace those of its project.

A job gets its limits when it is created: its own first, then those of its spider, then those of its project. So a
change of a policy alters no job that exists, except for `max_running`, which counts at once.
"""

from sqlalchemy import Connection, delete, func, insert, select, update

from gossamer.storage.sql.rows import fetch, fetch_first
from gossamer_platform.lifecycle import ACTIVE
from gossamer_platform.policy import JobPolicy
from gossamer_platform.state.projects import project_id
from gossamer_platform.state.tables import Project, SpiderPolicy, jobs, projects, spider_policies


def policy_of(row: Project | SpiderPolicy) -> JobPolicy:
    """Return the policy in the columns of a row."""
    return JobPolicy(**{name: getattr(row, name) for name in JobPolicy.model_fields})


def spider_policy(connection: Connection, project: int, spider: str) -> JobPolicy:
    """Return what a spider of a project changes of the project's policy."""
    wanted = (spider_policies.c.project_id == project, spider_policies.c.spider == spider)
    row = fetch_first(connection, SpiderPolicy, select(spider_policies).where(*wanted))
    return JobPolicy() if row is None else policy_of(row)


def set_spider_policy(
    connection: Connection, project: str, spider: str, policy: JobPolicy, *, max_running: int | None
) -> None:
    """Replace the policy of a spider. May be repeated."""
    number = project_id(connection, project)  # locked until the end of the transaction
    wanted = (spider_policies.c.project_id == number, spider_policies.c.spider == spider)
    values = {**{name: getattr(policy, name) for name in JobPolicy.model_fields}, "max_running": max_running}
    if not connection.execute(update(spider_policies).where(*wanted).values(**values)).rowcount:
        connection.execute(insert(spider_policies).values(project_id=number, spider=spider, **values))


def delete_spider_policy(connection: Connection, project: str, spider: str) -> bool:
    """Delete the policy of a spider. Return False if it has none."""
    number = select(projects.c.id).where(projects.c.name == project).scalar_subquery()
    wanted = (spider_policies.c.project_id == number, spider_policies.c.spider == spider)
    return bool(connection.execute(delete(spider_policies).where(*wanted)).rowcount)


def list_spider_policies(
    connection: Connection, project: str, *, after: str = "", limit: int | None = None
) -> list[SpiderPolicy]:
    """Return the policies of a project's spiders, by the names of these: up to `limit` of those that come after
    `after`."""
    joined = select(spider_policies).join(projects, projects.c.id == spider_policies.c.project_id)
    wanted = joined.where(projects.c.name == project, spider_policies.c.spider > after)
    return fetch(connection, SpiderPolicy, wanted.order_by(spider_policies.c.spider).limit(limit))


def full_spiders(connection: Connection) -> list[tuple[int, str]]:
    """Return the spiders, by number of the project and name, of which no further job may run."""
    running = (
        select(func.count())
        .where(
            jobs.c.state.in_(ACTIVE),
            jobs.c.project_id == spider_policies.c.project_id,
            jobs.c.spider == spider_policies.c.spider,
        )
        .scalar_subquery()
    )
    full = select(spider_policies.c.project_id, spider_policies.c.spider).where(
        running >= spider_policies.c.max_running
    )
    return [(row.project_id, row.spider) for row in connection.execute(full)]
