"""Liveness and readiness of a command that works, over HTTP at the address of its metrics.

Fixed, because orchestrators ask for them: the paths, the statuses, and that `/healthz` depends on no other service: an
outage of one would restart every worker.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from gossamer.telemetry.logs import service_troubles

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

_BLOCKING = frozenset({"frontier", "output"})
"""Troubles that keep a worker from all work."""

_ALIVE: dict[str, object] = {"status": "ok"}


class WorkProbes:
    """Answers `/healthz` and `/readyz`. Until `attach` is called, the process is alive and not ready."""

    def __init__(self) -> None:
        self._is_working: Callable[[], bool] = lambda: False
        self._troubles: Callable[[], Sequence[str]] = lambda: ["frontier"]  # it is what a command waits for first

    def attach(self, is_working: Callable[[], bool], troubles: Callable[[], Sequence[str]]) -> None:
        """Ask these from now on, in any thread. `troubles`: returns the names of the current ones."""
        self._is_working = is_working
        self._troubles = troubles

    def before(self, app: "WSGIApplication") -> "WSGIApplication":
        """Return an application that answers the probes, and leaves all other paths to `app`."""

        def answer(environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
            match environ.get("PATH_INFO"):
                case "/healthz":
                    status, body = "200 OK", _ALIVE
                case "/readyz":
                    status, body = self._readiness()
                case _:
                    return app(environ, start_response)
            start_response(status, [("Content-Type", "application/json")])
            return [msgspec.json.encode(body)]

        return answer

    def _readiness(self) -> tuple[str, dict[str, object]]:
        """Return status and body of `/readyz`."""
        troubles = sorted(self._troubles())
        is_ready = self._is_working() and _BLOCKING.isdisjoint(troubles)
        status = "waiting" if not is_ready else "degraded" if service_troubles(troubles) else "ready"
        return "200 OK" if is_ready else "503 Service Unavailable", {"status": status, "troubles": troubles}
