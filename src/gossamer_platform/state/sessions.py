"""Statements on the sessions of browsers that have logged in to the dashboard.

A session is 256 random bits in a cookie; only their SHA-256 is stored. It belongs to a token, and ends with it, or to
the server's name and password. Any manager of the database accepts it.
"""

import hashlib
import hmac
import secrets
from typing import Final

from sqlalchemy import Connection, delete, select

from gossamer.storage.sql.clock import DatabaseNow
from gossamer.storage.sql.rows import add_row, fetch_first
from gossamer.web.access import is_secret
from gossamer_platform.state.tables import BrowserSession, browser_sessions, tokens
from gossamer_platform.state.tokens import Principal, find_owner

_SESSIONS_OF_ONE: Final = 100
"""Sessions of one token, or of the password, at a time; the oldest end. More keep those of more browsers."""


def begin_session(connection: Connection, *, token_id: int, password: str = "", seconds: float) -> str:
    """Add a session, and return its secret. `token_id` 0: the session is that of a name and a password, which
    `password` has as NAME:PASSWORD. Sessions whose time is over are deleted."""
    connection.execute(delete(browser_sessions).where(browser_sessions.c.expires_at < DatabaseNow()))
    own = select(browser_sessions.c.id).where(browser_sessions.c.token_id == token_id)
    oldest = own.order_by(browser_sessions.c.id.desc()).offset(_SESSIONS_OF_ONE - 1).limit(1)
    if (last := connection.scalar(oldest)) is not None:
        mine = browser_sessions.c.token_id == token_id
        connection.execute(delete(browser_sessions).where(mine, browser_sessions.c.id <= last))
    secret = secrets.token_urlsafe(32)
    proof = _proof(secret, password) if not token_id else ""
    add_row(
        connection,
        browser_sessions,
        digest=_digest(secret),
        token_id=token_id,
        proof=proof,
        expires_at=DatabaseNow() + seconds,
    )
    return secret


def session_principal(
    connection: Connection, secret: str, *, login: Principal | None, password: str
) -> Principal | None:
    """Return who has begun a session. None: there is no such session, or what it was begun with is not valid any more.
    `login` and `password`: principal of the server's name and password, and these as NAME:PASSWORD; None: there are
    none."""
    valid = (browser_sessions.c.digest == _digest(secret), browser_sessions.c.expires_at > DatabaseNow())
    session = fetch_first(connection, BrowserSession, select(browser_sessions).where(*valid))
    if session is None:
        return None
    if not session.token_id:
        return login if is_secret(session.proof.encode(), _proof(secret, password)) else None
    return find_owner(connection, tokens.c.id == session.token_id)


def end_session(connection: Connection, secret: str) -> None:
    """Delete a session, if it exists."""
    connection.execute(delete(browser_sessions).where(browser_sessions.c.digest == _digest(secret)))


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _proof(secret: str, password: str) -> str:
    """Return what shows that a session was begun with this name and password. It cannot be made without the secret."""
    return hmac.new(secret.encode("utf-8", "replace"), password.encode(), hashlib.sha256).hexdigest()
