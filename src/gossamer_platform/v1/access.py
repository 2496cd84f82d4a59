"""Decides who sends a request, and what that permits: by token, by password, or without either by addresses.

A deployment runs code. Scrapyd sends headers that let every web page call it, so without a password a page in a
browser on this machine could deploy. `web/access.py` has the rules that keep pages and other machines out. Fixed: the
answers to a wrong password, which are Scrapyd's.
"""

import base64
import binascii
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from starlette.datastructures import Headers

from gossamer.errors import GossamerError
from gossamer.web.access import authorization, foreign_page_fault, is_secret, local_fault
from gossamer.web.rates import GuessLimit, TooManyGuesses
from gossamer_platform.state.tokens import Principal, TokenScope

CHALLENGE: Final = 'basic realm="Scrapyd"'
"""Value of WWW-Authenticate. Scrapyd's: fixed."""
_LOCAL: Final = Principal("local", TokenScope.ADMIN)
"""Principal of requests from this machine while there is no password. The name is in the audit: fixed."""


class Unauthorized(GossamerError):
    """The token or the password is missing or wrong."""

    only_detail = True


class NotPermitted(GossamerError):
    """The request is not permitted."""

    only_detail = True


class TooManyPasswords(GossamerError):
    """The client has sent too many wrong passwords."""

    only_detail = True

    def __init__(self, error: TooManyGuesses) -> None:
        super().__init__(str(error))
        self.cause = error
        self.headers = error.headers
        """Headers of the answer, whose status is 429."""


class Login(NamedTuple):
    """Name and password of the server. Both empty: there is no password."""

    username: str
    password: str

    @property
    def exists(self) -> bool:
        """True if requests need a password or a token."""
        return bool(self.username and self.password)


class AccessControl:
    """Finds the principal of a request."""

    def __init__(self, login: Login, find_token: Callable[[str], Awaitable[Principal | None]]) -> None:
        """`find_token` returns the owner of a token's secret, or None."""
        self._login = login
        self._find_token = find_token
        self._guesses = GuessLimit(monotonic=time.monotonic)

    async def principal(self, headers: Headers, *, client: str | None) -> Principal:
        """Return the principal. `client`: its address; None: it uses a Unix socket. Raises Unauthorized, NotPermitted
        or TooManyPasswords."""
        scheme, given = authorization(headers)
        if scheme == "bearer":
            if (found := await self._find_token(given)) is not None:
                return found
            raise Unauthorized("the token is unknown, or its time is over")
        if self._login.exists:
            return await self._by_password(scheme, given, client)
        return _local_principal(headers, client=client)

    async def principal_of_key(self, headers: Headers, key: str = "", *, client: str | None) -> Principal:
        """Return the principal of a client that sends a key as the name of basic authentication, or elsewhere (`key`).
        The key is a token, or NAME:PASSWORD of the server. Raises as `principal` does."""
        scheme, given = authorization(headers)
        if scheme == "bearer":
            return await self.principal(headers, client=client)
        sent = b":".join(_basic(given)) if scheme == "basic" else key.encode()
        secret = sent.removesuffix(b":").decode(errors="replace")
        with contextlib.suppress(Unauthorized):
            return await self.principal_of_secret(secret, client=client)
        if not self._login.exists:
            return _local_principal(headers, client=client)
        raise Unauthorized("the API key is unknown; it is a token, or NAME:PASSWORD of scrapyd.conf")

    @property
    def password(self) -> str:
        """The server's name and password as NAME:PASSWORD. Empty: there are none."""
        return f"{self._login.username}:{self._login.password}" if self._login.exists else ""

    def login_principal(self) -> Principal | None:
        """Return the principal who knows the password. None: there is none."""
        return Principal(self._login.username, TokenScope.ADMIN) if self._login.exists else None

    def local_principal(self, headers: Headers, *, client: str | None) -> Principal | None:
        """Return the principal of programs of this machine. None: they need the password. Raises NotPermitted for
        requests of others."""
        return None if self._login.exists else _local_principal(headers, client=client)

    async def principal_of_secret(self, secret: str, *, client: str | None) -> Principal:
        """Return the principal who knows a secret: a token, or NAME:PASSWORD of the server. Raises Unauthorized or
        TooManyPasswords."""
        if secret and (found := await self._owner(secret.encode(), secret, client)) is not None:
            return found
        raise Unauthorized("the API key is unknown; it is a token, or NAME:PASSWORD of scrapyd.conf")

    async def _by_password(self, scheme: str, given: str, client: str | None) -> Principal:
        name, password = _basic(given) if scheme == "basic" else (b"", b"")
        # Clients of Scrapyd can send a token only as a password.
        token = password.decode(errors="replace")
        if password and (found := await self._owner(name + b":" + password, token, client)) is not None:
            return found
        raise Unauthorized("send the name and the password of scrapyd.conf, or Authorization: Bearer <token>")

    async def _owner(self, sent: bytes, token: str, client: str | None) -> Principal | None:
        """Return the principal who knows NAME:PASSWORD of the server, or a token. None: neither is right. Raises
        TooManyPasswords: people choose passwords. A token is accepted all the same."""
        login = self.login_principal()
        is_password = login is not None and is_secret(sent, self.password)
        refusal: TooManyGuesses | None = None
        if login is not None:
            try:
                self._guesses.judge(client, is_right=is_password)  # before the pause below, in which others guess
            except TooManyGuesses as error:
                refusal = error
        if is_password and refusal is None:
            return login
        if (found := await self._find_token(token)) is not None:
            if refusal is None:
                self._guesses.forgive(client)
            return found
        if refusal is not None:
            raise TooManyPasswords(refusal)
        return None


def _local_principal(headers: Headers, *, client: str | None) -> Principal:
    """Return the principal of programs of this machine, where there is no password. Raises NotPermitted."""
    if fault := local_fault(headers, client=client):
        raise NotPermitted(f"{fault}. Set username and password in scrapyd.conf")
    return _LOCAL


def _basic(given: str) -> tuple[bytes, bytes]:
    """Return name and password of a header of basic authentication. Empty: they cannot be read."""
    try:
        name, _, password = base64.b64decode(given.strip()).partition(b":")
    except (binascii.Error, ValueError):
        return b"", b""
    return name, password


def refuse_foreign_page(method: str, headers: Headers) -> None:
    """Raise NotPermitted for a change that a page of another origin sends."""
    if fault := foreign_page_fault(method, headers):
        raise NotPermitted(fault)
