"""Statements on tokens: who may do what.

A token is a secret that a program sends instead of a password. Only its SHA-256 is stored: it is 256 random bits, so
it cannot be found from that, and a slow hash would only slow down each request. Fixed: the words of scopes, which are
stored and shown.
"""

import hashlib
import secrets
from enum import StrEnum
from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, delete, or_, select, update

from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import add_row, fetch, fetch_first
from gossamer_platform.state.row_page import ALL_ROWS, RowPage
from gossamer_platform.state.tables import Token, tokens


class TokenScope(StrEnum):
    """Permission of a token. Each scope includes those before it, but NODE stands beside them."""

    READ = "read"
    """Read everything: jobs, logs, items, versions."""
    RUN = "run"
    """Schedule and cancel jobs."""
    DEPLOY = "deploy"
    """Deploy and delete versions, which is running code."""
    ADMIN = "admin"
    """Change limits, and make and revoke tokens."""
    NODE = "node"
    """Take and report jobs, as a node does, and nothing else. Admins may do so, too."""

    def includes(self, other: "TokenScope") -> bool:
        """Return whether this scope permits what the other does."""
        if TokenScope.NODE in (self, other):
            return self in (other, TokenScope.ADMIN)
        order = list(TokenScope)
        return order.index(self) >= order.index(other)


class Principal(NamedTuple):
    """The program or person that sends a request."""

    name: str
    scope: TokenScope
    project: str = ""
    """The only project that the principal may see and change. Empty: all."""
    token: int = 0
    """Number of its token. 0: it sent a password, or needs none."""
    node: str = ""
    """Node to which the token belongs. Empty: none has used it."""

    def sees(self, project: str | None) -> bool:
        """Return whether the principal may see what belongs to a project. None, or empty: to all projects."""
        return self.project in ("", project)


def add_token(
    connection: Connection, name: str, scope: TokenScope, *, project: str = "", valid_seconds: float | None = None
) -> tuple[int, str]:
    """Add a token, and return its number and the secret, which is not stored. `valid_seconds` None: for ever."""
    secret = f"gsm_{secrets.token_urlsafe(32)}"
    number = add_row(
        connection,
        tokens,
        name=name,
        digest=_digest(secret),
        scope=scope.value,
        project=project,
        created_at=DatabaseNow(),
        expires_at=None if valid_seconds is None else DatabaseNow() + valid_seconds,
    )
    return number, secret


def find_principal(connection: Connection, secret: str) -> Principal | None:
    """Return the owner of a token. None: there is no such token, or its time is over."""
    return find_owner(connection, tokens.c.digest == _digest(secret))


def find_owner(connection: Connection, condition: ColumnElement[bool]) -> Principal | None:
    """Return the owner of the token that meets a condition. None: there is none, or its time is over."""
    valid = or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > DatabaseNow())
    row = fetch_first(connection, Token, select(tokens).where(condition, valid))
    return None if row is None else Principal(row.name, TokenScope(row.scope), row.project, row.id, row.node)


def has_logins(connection: Connection) -> bool:
    """Return whether there is a token with which a person can log in."""
    found = connection.execute(select(tokens.c.id).where(tokens.c.scope != TokenScope.NODE).limit(1))
    return found.first() is not None


def list_tokens(connection: Connection, page: RowPage = ALL_ROWS, *, project: str = "") -> list[Token]:
    """Return a page of the tokens of a project, or of all; without their secrets, which nothing knows."""
    statement = select(tokens).where(*([tokens.c.project == project] if project else []))
    return fetch(connection, Token, page.of(statement, tokens.c.id))


def delete_token(connection: Connection, token_id: int, *, only: str = "") -> str | None:
    """Delete a token and return its name. `only`: project of the token; empty: any. None: there is no such token."""
    wanted = (tokens.c.id == token_id, *([tokens.c.project == only] if only else []))
    name = connection.scalar(select(tokens.c.name).where(*wanted))
    connection.execute(delete(tokens).where(*wanted))
    return name


def bind_token(connection: Connection, token_id: int, node: str) -> str:
    """Give a token to the node that uses it first. Return the node that has it. Empty: there is no such token."""
    mine = update(tokens).where(tokens.c.id == token_id, tokens.c.node == "").values(node=node)
    connection.execute(mine)
    return connection.scalar(select(tokens.c.node).where(tokens.c.id == token_id)) or ""


def release_token(connection: Connection, token_id: int) -> Token | None:
    """Let the next node that uses a token have it, and return the token. None: there is none of this number."""
    connection.execute(update(tokens).where(tokens.c.id == token_id).values(node=""))
    return fetch_first(connection, Token, select(tokens).where(tokens.c.id == token_id))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
