"""Decides who sends a request, and what that permits: by token, by password, or without either by names of hosts.

A deployment runs code. Scrapyd sends headers that let every web page call it, so without a password a page in a
browser on this machine could deploy. `web/access.py` has the rules that keep pages out. Fixed: the answers to a wrong
password, which are Scrapyd's.
"""

import base64
import binascii
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from starlette.datastructures import Headers

from gossamer.errors import GossamerError
from gossamer.web.access import authorization, foreign_page_fault, is_secret, local_fault
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

    async def principal(self, headers: Headers, *, over_unix_socket: bool) -> Principal:
        """Return the principal. Raises Unauthorized or NotPermitted."""
        scheme, given = authorization(headers)
        if scheme == "bearer":
            if (found := await self._find_token(given)) is not None:
                return found
            raise Unauthorized("the token is unknown, or its time is over")
        if self._login.exists:
            return await self._by_password(scheme, given)
        return _local_principal(headers, over_unix_socket=over_unix_socket)

    async def principal_of_key(self, headers: Headers, key: str = "", *, over_unix_socket: bool) -> Principal:
        """Return the principal of a client that sends a key as the name of basic authentication, or elsewhere (`key`).
        The key is a token, or NAME:PASSWORD of the server. Raises Unauthorized or NotPermitted."""
        scheme, given = authorization(headers)
        if scheme == "bearer":
            return await self.principal(headers, over_unix_socket=over_unix_socket)
        sent = b":".join(_basic(given)) if scheme == "basic" else key.encode()
        secret = sent.removesuffix(b":").decode(errors="replace")
        with contextlib.suppress(Unauthorized):
            return await self.principal_of_secret(secret)
        if not self._login.exists:
            return _local_principal(headers, over_unix_socket=over_unix_socket)
        raise Unauthorized("the API key is unknown; it is a token, or NAME:PASSWORD of scrapyd.conf")

    @property
    def password(self) -> str:
        """The server's name and password as NAME:PASSWORD. Empty: there are none."""
        return f"{self._login.username}:{self._login.password}" if self._login.exists else ""

    def login_principal(self) -> Principal | None:
        """Return the principal who knows the password. None: there is none."""
        return Principal(self._login.username, TokenScope.ADMIN) if self._login.exists else None

    def local_principal(self, headers: Headers, *, over_unix_socket: bool) -> Principal | None:
        """Return the principal of programs of this machine. None: they need the password. Raises NotPermitted for
        requests of others."""
        return None if self._login.exists else _local_principal(headers, over_unix_socket=over_unix_socket)

    async def principal_of_secret(self, secret: str) -> Principal:
        """Return the principal who knows a secret: a token, or NAME:PASSWORD of the server. Raises Unauthorized."""
        if secret and (found := await self._find_token(secret)) is not None:
            return found
        if (login := self.login_principal()) is not None and is_secret(secret.encode(), self.password):
            return login
        raise Unauthorized("the API key is unknown; it is a token, or NAME:PASSWORD of scrapyd.conf")

    async def _by_password(self, scheme: str, given: str) -> Principal:
        name, password = _basic(given) if scheme == "basic" else (b"", b"")
        login = self._login
        if is_secret(name + b":" + password, f"{login.username}:{login.password}"):
            return Principal(login.username, TokenScope.ADMIN)
        # Clients of Scrapyd can send a token only as a password.
        if password and (found := await self._find_token(password.decode(errors="replace"))) is not None:
            return found
        raise Unauthorized("send the name and the password of scrapyd.conf, or Authorization: Bearer <token>")


def _local_principal(headers: Headers, *, over_unix_socket: bool) -> Principal:
    """Return the principal of programs of this machine, where there is no password. Raises NotPermitted."""
    if fault := local_fault(headers, over_unix_socket=over_unix_socket):
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
