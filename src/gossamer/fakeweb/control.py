"""The reserved host `_fakeweb.test`: how another process reads the log and mounts pages. Its requests are not logged.

GET  /spec                 the `WebSpec` as JSON
GET  /stats                `Stats` as JSON
GET  /log?from=N&limit=M   records N to N+M (at most 10,000) as JSON lines; none: that was the end for now
GET  /hostile              where each hostile host begins, as JSON lines; their bodies are made by then
POST /reset                forget the log; pages that fail once fail again
POST /mount                a `Mount` as JSON: serve these answers there

Fixed: the paths and the fields of the messages, which `gossamer.fakeweb.process`, tests and people's scripts use;
fields with a default may be added. Safe to change: the texts of errors, and LOG_PAGE.
"""

from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import msgspec

from gossamer.fakeweb.answer import Answer, plain

if TYPE_CHECKING:
    from gossamer.fakeweb.server import Server

HOST = "_fakeweb.test"
LOG_PAGE = 10_000
"""Maximum number of log records in one answer. May be changed: readers ask again from where the answer ended. More
hold up the server for longer."""


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


def answer(server: "Server", method: str, target: str, body: bytes) -> Answer:
    """Carry out a request to the control host and return its answer: 400 with the reason for an invalid one, 404 with
    the list of requests for an unknown one."""
    parts = urlsplit(target)
    match method, parts.path:
        case "GET", "/spec":
            return _json(msgspec.json.encode(server.spec))
        case "GET", "/stats":
            return _json(msgspec.json.encode(server.stats()))
        case "GET", "/log":
            query = parse_qs(parts.query)
            try:
                start = int(query.get("from", ["0"])[0])
                limit = min(LOG_PAGE, int(query.get("limit", [str(LOG_PAGE)])[0]))
            except ValueError:
                return plain("from and limit are numbers\n", status=400)
            return _json(server.journal.lines(max(0, start), max(0, start) + max(0, limit)))
        case "GET", "/hostile":
            return _json(msgspec.json.Encoder().encode_lines(server.hostile_places()))
        case "POST", "/reset":
            server.reset()
            return plain("reset\n")
        case "POST", "/mount":
            try:
                mount = msgspec.json.decode(body, type=Mount)
                server.mount(mount.host, mount.path, mount.answers)
            except (msgspec.DecodeError, ValueError) as error:
                return plain(f"{error}\n", status=400)
            return plain("mounted\n")
    return plain("GET /spec, /stats, /log, /hostile; POST /reset, /mount\n", status=404)


def _json(content: bytes) -> Answer:
    return Answer(headers=(("Content-Type", "application/json"),), body=content)
