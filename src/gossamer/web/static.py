"""Files of pages (styles, scripts, pictures) under names that change with their content.

A browser keeps such a file for a year, and asks for another name after an update. Fixed: only files that were in the
folder at the start are served, so no path leads out of it.
"""

import hashlib
import posixpath
from importlib.resources.abc import Traversable
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gossamer.web.problems import Problem, problem_json

_MEDIA_TYPES: Final = {
    ".css": "text/css",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
"""By ending. The table of the standard library depends on the machine."""
_HEADERS: Final = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


class StaticFiles:
    """ASGI application that serves the files of one folder, which are kept in memory."""

    def __init__(self, folder: Traversable, path: str) -> None:
        """`path`: where the application is mounted, such as `/ui/static`. Raises KeyError for a file whose ending has
        no media type here."""
        self._responses: dict[str, Response] = {}
        self._addresses: dict[str, str] = {}
        for file in folder.iterdir():
            if file.is_file():
                content, (stem, ending) = file.read_bytes(), posixpath.splitext(file.name)
                address = f"{path}/{stem}.{hashlib.sha256(content).hexdigest()[:12]}{ending}"
                self._addresses[file.name] = address
                self._responses[address] = Response(content, headers=_HEADERS, media_type=_MEDIA_TYPES[ending])

    def address(self, name: str) -> str:
        """Return the address of a file, for templates. Raises KeyError if there is none of this name."""
        return self._addresses[name]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = self._responses.get(scope["path"])
        if response is None:
            response = problem_json(Problem(404, "Not found", "this file does not exist; reload the page"))
        elif scope["method"] not in ("GET", "HEAD"):
            response = problem_json(Problem(405, "Method not allowed", "only GET", headers={"Allow": "GET, HEAD"}))
        await response(scope, receive, send)
