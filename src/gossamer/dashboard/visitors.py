"""Visitors of the dashboard: who they are, what they may do, and the gate that lets them in.

The scopes are the platform's: each includes those before it. A crawl service has one token, which permits everything.
"""

import time
from collections.abc import Callable
from typing import Any, Final, Protocol

import msgspec
from starlette.requests import Request

from gossamer.dashboard.sessions import COOKIE, Sessions
from gossamer.web.access import is_secret, local_fault
from gossamer.web.rates import GuessLimit, client_address

READ: Final = "read"
RUN: Final = "run"
DEPLOY: Final = "deploy"
ADMIN: Final = "admin"
_ORDER: Final = (READ, RUN, DEPLOY, ADMIN)


class Visitor(msgspec.Struct, frozen=True):
    """A person, or a program, that asks for a page."""

    name: str = "local"
    scope: str = ADMIN
    """Largest permission: read, run, deploy or admin. Any other word permits nothing."""
    project: str = ""
    """The only project that the visitor may see. Empty: all."""
    principal: Any = None
    """Sender of requests to an API of this process, in the form that the API has for it."""
    has_session: bool = False
    """True: the visitor has logged in, and can log out."""
    can_log_in: bool = False
    """True: the visitor has no session, and may have a secret for one."""

    def may(self, scope: str) -> bool:
        """Return whether the visitor has a scope."""
        return self.scope in _ORDER and _ORDER.index(self.scope) >= _ORDER.index(scope)


class Forbidden(Exception):
    """The visitor may not use the dashboard, or this page."""


class GateAway(Exception):
    """The gate cannot find out who the visitor is, because what it asks does not answer."""


class Gate(Protocol):
    """Decides who may use a dashboard. Every call may raise GateAway."""

    @property
    def cookie(self) -> str:
        """Name of the cookie that holds a session."""

    async def visitor(self, request: Request) -> Visitor | None:
        """Return the visitor. None: it has to log in. Raises Forbidden where no login would help."""

    async def begin(self, secret: str, *, client: str | None) -> str | None:
        """Return the cookie's value for a new session. None: the secret is wrong. `client`: address; None: a Unix
        socket. Raises TooManyGuesses."""

    async def end(self, cookie: str) -> None:
        """End a session, if it exists."""


class TokenGate:
    """Gate with one token, or for programs and browsers of this machine only."""

    cookie = COOKIE

    def __init__(self, token: str, guesses: GuessLimit, *, now: Callable[[], float] = time.time) -> None:
        """`token`: empty: visitors of this machine need none, and others are refused."""
        self._token = token
        self._guesses = guesses
        self._sessions = Sessions(token)
        self._now = now

    async def visitor(self, request: Request) -> Visitor | None:
        """Return the visitor. None: it has to log in. Raises Forbidden where no login would help."""
        if not self._token:
            if fault := local_fault(request.headers, client=client_address(request)):
                raise Forbidden(fault)
            return Visitor()
        is_valid = self._sessions.is_valid(request.cookies.get(COOKIE, ""), now=self._now())
        return Visitor(name="token", has_session=True) if is_valid else None

    async def begin(self, secret: str, *, client: str | None) -> str | None:
        """Return the cookie's value for a new session. None: the secret is wrong. Raises TooManyGuesses."""
        is_right = is_secret(secret.encode(), self._token)
        self._guesses.judge(client, is_right=is_right)
        return self._sessions.begin(now=self._now()) if is_right else None

    async def end(self, cookie: str) -> None:
        """Leave the session to its end: its cookie is taken from the browser, and nothing is stored here."""
