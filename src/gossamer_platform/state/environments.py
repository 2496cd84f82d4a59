"""Statements on the environments of versions on nodes: what was built where, and with which log.

The rows tell people; no decision depends on them, because a node looks at its own disk. Fixed: one row for a version
and a node, which a later report replaces.
"""

from msgspec.structs import asdict
from sqlalchemy import Connection, delete, insert, literal, select

from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import fetch
from gossamer_platform.link import EnvironmentReport
from gossamer_platform.state.tables import EnvironmentRow, environments, projects, versions


class Environment(EnvironmentRow):
    """An environment with the name of its version."""

    version: str


def record_environment(connection: Connection, node: str, report: EnvironmentReport) -> None:
    """Keep a report. Nothing happens if the version was deleted meanwhile."""
    # Locked, so that the row of the version is not deleted while one that refers to it is added.
    known = select(versions.c.id).where(versions.c.id == report.version_id).with_for_update(key_share=True)
    if connection.scalar(known) is None:
        return
    columns = {**asdict(report), "requirements": list(report.requirements)}
    mine = (environments.c.version_id == report.version_id, environments.c.node == node)
    connection.execute(delete(environments).where(*mine))
    connection.execute(insert(environments).values(**columns, node=node, changed_at=DatabaseNow()))


def environment_rows(connection: Connection, project: str, version: str) -> list[Environment]:
    """Return the environments of a project's versions, with an empty log, the latest first.

    `version`: name of the only one; empty: of all.
    """
    columns = [column for column in environments.c if column is not environments.c.log]
    statement = (
        select(*columns, literal("").label("log"), versions.c.name.label("version"))
        .join(versions, versions.c.id == environments.c.version_id)
        .join(projects, projects.c.id == versions.c.project_id)
        .where(projects.c.name == project)
        .order_by(environments.c.changed_at.desc(), environments.c.version_id.desc())
    )
    return fetch(connection, Environment, statement.where(versions.c.name == version) if version else statement)


def environment_log(connection: Connection, project: str, version: str, node: str) -> str | None:
    """Return the log of the latest build for a version. `node`: name of the node; empty: the one that was last. None:
    there is none."""
    statement = (
        select(environments.c.log)
        .join(versions, versions.c.id == environments.c.version_id)
        .join(projects, projects.c.id == versions.c.project_id)
        .where(projects.c.name == project, versions.c.name == version)
        .order_by(environments.c.changed_at.desc(), environments.c.version_id.desc())
        .limit(1)
    )
    return connection.scalar(statement.where(environments.c.node == node) if node else statement)
