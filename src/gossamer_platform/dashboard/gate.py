"""Gate of a dashboard beside the platform's API: who has begun a session, and with what.

A visitor logs in with a token, or with the server's name and password as NAME:PASSWORD, or sends them with each request
as to the API. A server without a password lets visitors of its own machine in without that, as its API does.
"""

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Final, TypeVar

from sqlalchemy.exc import SQLAlchemyError
from starlette.requests import Request

from gossamer.dashboard.sessions import SESSION_SECONDS
from gossamer.dashboard.visitors import GateAway, Visitor
from gossamer.web.rates import client_address
from gossamer_platform.state import sessions, tokens
from gossamer_platform.state.database import StateDatabase
from gossamer_platform.state.tokens import Principal, TokenScope
from gossamer_platform.v1.access import AccessControl, NotPermitted, TooManyPasswords, Unauthorized

COOKIE: Final = "gossamer_platform_session"
_LONGEST_COOKIE: Final = 200
_SECONDS: Final = 3.0
"""Longest time for which a page waits for the database. More leaves people without an answer."""

T = TypeVar("T")


class PlatformGate:
    """Gate with the platform's tokens and its password."""

    cookie = COOKIE

    def __init__(self, database: StateDatabase, access: AccessControl) -> None:
        self._database = database
        self._access = access

    async def visitor(self, request: Request) -> Visitor | None:
        """Return the visitor. None: it has to log in."""
        cookie = request.cookies.get(COOKIE, "")
        if cookie and len(cookie) <= _LONGEST_COOKIE:
            login, password = self._access.login_principal(), self._access.password
            principal = await _soon(
                self._database.read(lambda c: sessions.session_principal(c, cookie, login=login, password=password))
            )
            if principal is not None:
                return _visitor(principal, has_session=True, can_log_in=False)
        client = client_address(request)
        with contextlib.suppress(NotPermitted, Unauthorized, TooManyPasswords):
            if "authorization" in request.headers:  # of a program, or of a browser that Scrapyd's pages have asked
                sent = await _soon(self._access.principal(request.headers, client=client))
                return _visitor(sent, has_session=False, can_log_in=True)
            local = self._access.local_principal(request.headers, client=client)
            if local is not None:
                can_log_in = await _soon(self._database.read(tokens.has_logins))
                return _visitor(local, has_session=False, can_log_in=can_log_in)
        return None

    async def begin(self, secret: str, *, client: str | None) -> str | None:
        """Return the cookie's value for a new session. None: the secret is wrong. Raises TooManyGuesses."""
        try:
            principal = await _soon(self._access.principal_of_secret(secret, client=client))
        except Unauthorized:
            return None
        except TooManyPasswords as error:
            raise error.cause from None
        if principal.scope is TokenScope.NODE:
            return None
        password = self._access.password
        return await _soon(
            self._database.write(
                lambda c: sessions.begin_session(
                    c, token_id=principal.token, password=password, seconds=float(SESSION_SECONDS)
                )
            )
        )

    async def end(self, cookie: str) -> None:
        """End a session, if it exists."""
        if cookie and len(cookie) <= _LONGEST_COOKIE:
            await _soon(self._database.write(lambda c: sessions.end_session(c, cookie)))


async def _soon(call: Awaitable[T]) -> T:
    """Return the answer to a call that asks the database. Raises GateAway if none comes in time."""
    try:
        async with asyncio.timeout(_SECONDS):  # the thread goes on for a while
            return await call
    except SQLAlchemyError as error:
        raise GateAway(str(error).partition("\n")[0]) from error
    except TimeoutError:
        raise GateAway(f"no answer within {_SECONDS:g} seconds") from None


def _visitor(principal: Principal, *, has_session: bool, can_log_in: bool) -> Visitor:
    return Visitor(principal.name, principal.scope.value, principal.project, principal, has_session, can_log_in)
