"""Who may use the API: whoever knows the token; without one, programs on this machine, and no web page."""

import hmac
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from gossamer.api.docs import DOCS_PATHS
from gossamer.api.problems import Problem

UNLIMITED_PATHS = frozenset({"/healthz"})
"""Answered also to a client that is at a limit."""
OPEN_PATHS = UNLIMITED_PATHS | DOCS_PATHS
"""Answered to anybody."""


class Auth:
    """ASGI middleware; raises Problem."""

    def __init__(self, app: ASGIApp, *, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] not in OPEN_PATHS:
            headers = Headers(scope=scope)
            if self._token:
                self._check_token(headers)
            else:
                check_local(headers)
        await self._app(scope, receive, send)

    def _check_token(self, headers: Headers) -> None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), self._token):
            raise Problem(
                401,
                "Unauthorized",
                "send the header Authorization: Bearer <token>, with the token of the setting service.token",
                headers={"WWW-Authenticate": 'Bearer realm="gossamer"'},
            )


def check_local(headers: Headers) -> None:
    """That the request was not made by a web page in a browser on this machine: a browser says whose page it is, and
    a name that was bent to 127.0.0.1 stands in Host. Raises Problem."""
    host = headers.get("host", "")
    if host and not is_loopback_name(_hostname(host)):
        raise Problem(
            403, "Forbidden", f"without a token the API answers only to localhost, not as {host!r}; set service.token"
        )
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        raise Problem(403, "Forbidden", "without a token the API does not answer to web pages; set service.token")


def is_loopback_name(name: str) -> bool:
    """Whether a host name or address can only be this machine."""
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ip_address(name.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _hostname(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
