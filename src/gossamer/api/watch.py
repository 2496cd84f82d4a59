"""The outermost layer: every request is counted, and every error becomes a response."""

import logging
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gossamer.api.parts import Parts
from gossamer.api.paths import normal
from gossamer.api.problems import Problem, broken, problem_of, shown
from gossamer.errors import GossamerError
from gossamer.telemetry import names

log = logging.getLogger("gossamer.api")

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Watch:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, *, parts: Parts) -> None:
        self._app = app
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = self._parts.monotonic()
        status = 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._served(scope, receive, noting, lambda: status != 0)
        finally:
            self._count(scope, status, self._parts.monotonic() - started)

    async def _served(self, scope: Scope, receive: Receive, send: Send, is_begun: Callable[[], bool]) -> None:
        try:
            scope["path"] = normal(scope["raw_path"])
            await self._app(scope, receive, send)
            return
        except Problem as error:
            problem = error
        except GossamerError as error:
            problem = problem_of(error)
            if problem.status >= 500:
                log.warning("%s %s: %s", scope["method"], scope["path"], error)
        except Exception:
            log.exception("%s %s %s", names.REQUEST_BROKE, scope["method"], scope["path"])
            problem = broken()
        if not is_begun():
            await shown(problem, scope["path"])(scope, receive, send)
        # Else part of an answer is out: the server sees that the rest does not come, and closes the connection.

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path_format", "other")
        method = scope["method"] if scope["method"] in _METHODS else "other"
        self._parts.metrics.http.labels(route, method, str(status)).inc()
        self._parts.metrics.http_seconds.labels(route).observe(seconds)
