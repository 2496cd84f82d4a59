"""Answers of the reserved host `_fakeweb.test`, whose paths `control.py` lists."""

from urllib.parse import parse_qs, urlsplit

import msgspec

from gossamer.fakeweb.answer import Answer, plain
from gossamer.fakeweb.control import LOG_PAGE, Mount
from gossamer.fakeweb.server import Server


def answer(server: Server, method: str, target: str, body: bytes) -> Answer:
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
