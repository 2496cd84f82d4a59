"""Statements on environment variables of projects; some of them are secrets, whose values are encrypted.

This module neither encrypts nor decrypts: it stores what `manager/vault.py` has made of a secret. Fixed: that a row is
replaced only while it has the value that was read (`replace_token`), because a client may set a secret while the
secrets are encrypted anew.
"""

from typing import Final

from sqlalchemy import Connection, and_, delete, func, insert, select, update

from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import fetch
from gossamer_platform.state.projects import project_id
from gossamer_platform.state.tables import Variable, projects, variables

MAX_VARIABLES: Final = 100
"""Variables of a project. Linux gives a process about 2 MB for all variables, so it is bound to the length of a
value."""


class Secret(Variable):
    """A secret with the name of its project."""

    project: str


def set_variable(connection: Connection, project: str, name: str, value: str, *, is_secret: bool) -> bool:
    """Set a variable of a project, which is created if there is none of this name. `value`: of a secret, its token.

    Return False, and change nothing, if the project has too many variables.
    """
    number = project_id(connection, project)
    this = and_(variables.c.project_id == number, variables.c.name == name)
    columns = {"value": value, "is_secret": is_secret, "changed_at": DatabaseNow()}
    if connection.execute(update(variables).where(this).values(**columns)).rowcount:
        return True
    known = select(func.count()).select_from(variables).where(variables.c.project_id == number)
    if (connection.scalar(known) or 0) >= MAX_VARIABLES:
        return False
    connection.execute(insert(variables).values(project_id=number, name=name, **columns))
    return True


def delete_variable(connection: Connection, project: str, name: str) -> bool:
    """Delete a variable. Return False if there is none of this name."""
    of_project = select(projects.c.id).where(projects.c.name == project).scalar_subquery()
    this = and_(variables.c.project_id == of_project, variables.c.name == name)
    return bool(connection.execute(delete(variables).where(this)).rowcount)


def delete_variables(connection: Connection, project: str) -> None:
    """Delete all variables of a project."""
    of_project = select(projects.c.id).where(projects.c.name == project).scalar_subquery()
    connection.execute(delete(variables).where(variables.c.project_id == of_project))


def list_variables(connection: Connection, project: str) -> list[Variable]:
    """Return the variables of a project in the order of their names."""
    statement = select(variables).join(projects, projects.c.id == variables.c.project_id)
    return fetch(connection, Variable, statement.where(projects.c.name == project).order_by(variables.c.name))


def list_secrets(connection: Connection) -> list[Secret]:
    """Return the secrets of all projects."""
    statement = select(variables, projects.c.name.label("project")).where(variables.c.is_secret)
    joined = statement.join(projects, projects.c.id == variables.c.project_id)
    return fetch(connection, Secret, joined.order_by(projects.c.name, variables.c.name))


def replace_token(connection: Connection, variable_id: int, *, old: str, new: str) -> bool:
    """Replace the token of a secret whose value stays. Return False if the secret was changed or deleted meanwhile."""
    unchanged = and_(variables.c.id == variable_id, variables.c.is_secret, variables.c.value == old)
    return bool(connection.execute(update(variables).where(unchanged).values(value=new)).rowcount)
