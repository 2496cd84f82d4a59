"""The reserved host `_fakeweb.test`: how another process reads the log and mounts pages. Its requests are not logged.

GET  /spec                 the `WebSpec` as JSON
GET  /stats                `Stats` as JSON
GET  /log?from=N&limit=M   records N to N+M (at most 10,000) as JSON lines; none: that was the end for now
GET  /hostile              where each hostile host begins, as JSON lines; their bodies are made by then
POST /reset                forget the log; pages that fail once fail again
POST /mount                a `Mount` as JSON: serve these answers there

Tests and people's scripts use the paths and the fields of the messages; fields with a default may be added.
"""

import msgspec

from gossamer.fakeweb.answer import Answer

HOST = "_fakeweb.test"
LOG_PAGE = 10_000
"""Maximum number of log records in one answer. Readers ask again from where the answer ended. More hold up the
server for longer."""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counters of the server since its start or the last reset."""

    requests: int
    missed: int
    """Requests that the log had no room for. While this is not 0 the log proves nothing."""
    connections: int
    """Connections accepted, those of the control host included."""
    open_connections: int
    cpu_seconds: float
    """CPU seconds of the server's whole process since it started; a reset does not clear them."""


class HostilePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where one hostile host begins."""

    name: str
    kind: str
    """Group of hosts that are hostile in the same respect."""
    about: str
    """Description for people."""
    url: str


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """Handmade answers for one address."""

    host: str
    path: str
    answers: tuple[Answer, ...]
