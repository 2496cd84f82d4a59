"""Decides who sends a request, and what that permits: by token, by password, or without either by names of hosts.

A deployment runs code. Scrapyd sends headers that let every web page call it, so without a password a page in a
browser on this machine could deploy. Therefore, without a password, the request must be addressed to a loopback name
(a page cannot forge `Host`, even if its own name leads to this machine), and must not come from a page of another
origin. Fixed: these two rules, and the answers to a wrong password, which are Scrapyd's.
"""

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from gossamer.errors import GossamerError
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

    async def principal(self, headers: Mapping[str, str], *, over_unix_socket: bool) -> Principal:
        """Return the principal. Raises Unauthorized or NotPermitted."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            if (found := await self._find_token(given.strip())) is not None:
                return found
            raise Unauthorized("the token is unknown, or its time is over")
        if self._login.exists:
            return await self._by_password(scheme, given)
        reason = refusal(headers, over_unix_socket=over_unix_socket)
        if reason:
            raise NotPermitted(reason)
        return _LOCAL

    async def principal_of_key(self, headers: Mapping[str, str], key: str = "", *, over_unix_socket: bool) -> Principal:
        """Return the principal of a client that sends a key as the name of basic authentication, or elsewhere (`key`).
        The key is a token, or NAME:PASSWORD of the server. Raises Unauthorized or NotPermitted."""
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return await self.principal(headers, over_unix_socket=over_unix_socket)
        sent = b":".join(_basic(given)) if scheme.lower() == "basic" else key.encode()
        secret = sent.removesuffix(b":").decode(errors="replace")
        if secret and (found := await self._find_token(secret)) is not None:
            return found
        if not self._login.exists:
            return await self.principal({**headers, "authorization": ""}, over_unix_socket=over_unix_socket)
        if hmac.compare_digest(secret.encode(), f"{self._login.username}:{self._login.password}".encode()):
            return Principal(self._login.username, TokenScope.ADMIN)
        raise Unauthorized("the API key is unknown; it is a token, or NAME:PASSWORD of scrapyd.conf")

    async def _by_password(self, scheme: str, given: str) -> Principal:
        name, password = _basic(given) if scheme.lower() == "basic" else (b"", b"")
        login = self._login
        # Compared in constant time, so that the time of the answer tells nothing about the password.
        same = hmac.compare_digest(name + b":" + password, f"{login.username}:{login.password}".encode())
        if same:
            return Principal(login.username, TokenScope.ADMIN)
        # Clients of Scrapyd can send a token only as a password.
        if password and (found := await self._find_token(password.decode(errors="replace"))) is not None:
            return found
        raise Unauthorized("send the name and the password of scrapyd.conf, or Authorization: Bearer <token>")


def _basic(given: str) -> tuple[bytes, bytes]:
    """Return name and password of a header of basic authentication. Empty: they cannot be read."""
    try:
        name, _, password = base64.b64decode(given.strip()).partition(b":")
    except (binascii.Error, ValueError):
        return b"", b""
    return name, password


def refuse_foreign_page(method: str, headers: Mapping[str, str]) -> None:
    """Raise NotPermitted for a change that a page of another origin sends.

    A browser that knows the password sends it with a form of any page, also with one of another port of this machine.
    It tells in Sec-Fetch-Site where the page comes from; programs do not send this header.
    """
    if method not in ("GET", "HEAD", "OPTIONS") and headers.get("sec-fetch-site", "none") not in (
        "none",
        "same-origin",
    ):
        raise NotPermitted("the request comes from a page of another site; send it from here, or from a program")


def refusal(headers: Mapping[str, str], *, over_unix_socket: bool) -> str:
    """Return why a request without a password is refused. Empty: it is allowed."""
    host = headers.get("host", "")
    if not over_unix_socket and not is_loopback(_name(host)):
        return (
            f"the request is addressed to {host or 'no host'}; without a password only localhost may be. Set username "
            "and password in scrapyd.conf"
        )
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return f"the request comes from a page of {origin}; without a password no other site may send requests"
    return ""


def is_loopback(name: str) -> bool:
    """Return whether a host name or address means this machine only."""
    if name.lower().rstrip(".") == "localhost" or name.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _name(host: str) -> str:
    """Return the Host header without its port."""
    return host if host.endswith("]") or ":" not in host else host.rpartition(":")[0]
