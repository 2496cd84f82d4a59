"""Applications with pages, beside an API on one server: each below a path, with headers that bind the browser.

A page that is shown under a strict Content-Security-Policy runs no script, loads no file and sends no form that its
server did not provide, whatever texts of others it contains.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gossamer.web.bodies import BodyLimit
from gossamer.web.problems import Problem, problem_json

STRICT_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; frame-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy of pages whose scripts and styles are files of their server."""
FRAMED_POLICY: Final = STRICT_POLICY.replace("frame-ancestors 'none'", "frame-ancestors 'self'")
"""That of what these pages show in a frame."""
_BODY_BYTES: Final = 1024 * 1024
"""Longest body of a request to an application with pages."""
_PROXY_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")
"""Path that a proxy may name. Any other, such as `//example.com`, would make links of pages lead elsewhere."""


def path_of_proxy(request: Request, header: str) -> str:
    """Return the path below which a proxy serves the pages, as it names it in this header. Empty: there is no such
    header, or its path is not valid."""
    given = request.headers.get(header, "").removesuffix("/") if header else ""
    return given if _PROXY_PATH.fullmatch(given) else ""


def page_headers(policy: str = STRICT_POLICY) -> dict[str, str]:
    """Return the headers of a page with this Content-Security-Policy, which no cache keeps."""
    # Not no-referrer: with it, browsers call the origin of a page's own form null, and every change would be refused.
    return {
        "Cache-Control": "no-store",
        "Content-Security-Policy": policy,
        "Cross-Origin-Opener-Policy": "same-origin",
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    }


class MountedApp(NamedTuple):
    """An application below a path."""

    app: ASGIApp
    """Finds its path in `root_path` of the scope, and the rest in `path`, as ASGI defines it: `path` begins with
    `root_path`. It decides by itself who may use it."""
    policy: str = STRICT_POLICY
    """Content-Security-Policy of its responses."""
    longest_body: int = _BODY_BYTES
    longer_bodies: Mapping[str, int] = MappingProxyType({})
    """Longest bodies of single paths that take files."""


class MountedApps:
    """ASGI application that passes requests below the path of a mount on to it, and all others to an application."""

    def __init__(self, app: ASGIApp, mounts: Mapping[str, MountedApp]) -> None:
        """`mounts`: by path, such as `/ui`."""
        self._app = app
        self._mounts = {path: (_limited(mount), page_headers(mount.policy)) for path, mount in mounts.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        root = next((root for root in self._mounts if path == root or path.startswith(f"{root}/")), None)
        if root is None:
            await self._app(scope, receive, send)
            return
        app, headers = self._mounts[root]

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in headers.items():
                    found.setdefault(name, value)
            await send(message)

        if "\0" in path:
            refused = problem_json(Problem(400, "Invalid request", "the address has a NUL character (%00)"))
            await refused(scope, receive, send_with_headers)
        else:
            await app({**scope, "root_path": scope.get("root_path", "") + root}, receive, send_with_headers)


def _limited(mount: MountedApp) -> ASGIApp:
    return BodyLimit(mount.app, longest=lambda path: mount.longer_bodies.get(path, mount.longest_body))
