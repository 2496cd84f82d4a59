"""Reader of web archives that Gossamer wrote, and the exchange that stands for a page whose wire bytes were not kept.

Each page is a `metadata` record behind the `response` and `request` records of its exchanges (see `warc.py`). The
reader holds the exchanges of one page at a time.

Fixed by what `warc.py` writes: the order of the records, and which fields of a page are in which record. Safe to
change: limits.
"""

import base64
import re
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import msgspec

from gossamer.errors import BadInput, FetchError
from gossamer.fetch.decode import decode, parse_encodings
from gossamer.fetch.exchange import ResponseLimits
from gossamer.fetch.request import OWNED
from gossamer.model.record import ItemRecord, Output, PageRecord, WireExchange

_LIMITS = ResponseLimits(body_bytes=2**31, bomb_ratio=2000)
"""Bodies in an archive have passed the crawl's own limits. May be raised freely."""
_MAX_LINE_BYTES = 65_536
"""Length of the longest header line that is read. May be raised freely."""
_NOT_STORED = frozenset({"content-encoding", "transfer-encoding"})
"""Headers that do not fit a body without its encodings, in lower case. Must hold all that describe its form."""
_RENAMED = re.compile(rb"^x-crawler-(transfer-encoding[ \t]*:)", re.IGNORECASE | re.MULTILINE)


@dataclass(slots=True)
class _Exchanges:
    """The exchanges before a metadata record, by the id of the response."""

    responses: dict[str, dict[str, Any]] = field(default_factory=dict)
    requests: dict[str, bytes] = field(default_factory=dict)
    """Head and body of each request, by the id of its response, or by its own where there is none."""


def read_pages(stream: BinaryIO) -> Generator[Output, None, int]:
    """Yield the pages and items of a decompressed archive. Return the number of responses without a page of ours."""
    waiting = _Exchanges()
    foreign = 0
    for headers, block in _records(stream):
        kind = headers.get("warc-type", "")
        identity = headers.get("warc-record-id", "")
        if kind == "response" and headers.get("content-type", "").startswith("application/http"):
            waiting.responses[identity] = {"headers": headers, "block": block}
        elif kind == "request":
            waiting.requests[headers.get("warc-concurrent-to", identity)] = block
        elif kind == "metadata" and headers.get("content-type") == "application/json":
            output = _output(headers, block, waiting)
            if output is not None:
                foreign += len(waiting.responses) - sum(bool(wire.response_head) for wire in output.wires)
                waiting = _Exchanges()
                yield output
        if len(waiting.responses) > _MOST_EXCHANGES:  # another program's archive
            foreign += len(waiting.responses)
            waiting = _Exchanges()
    return foreign + len(waiting.responses)


_MOST_EXCHANGES = 64
"""Exchanges of one page. Must exceed the largest number of redirects that a crawl follows, and be small, because they
are held in memory."""


def _records(stream: BinaryIO) -> Iterator[tuple[dict[str, str], bytes]]:
    """Yield the headers (names in lower case; the values of a repeated one with spaces between) and the block of each
    record."""
    while line := stream.readline(_MAX_LINE_BYTES):
        if not line.strip():
            continue
        if not line.startswith(b"WARC/"):
            raise BadInput("not a web archive: a record does not begin with WARC/")
        headers: dict[str, str] = {}
        while (line := stream.readline(_MAX_LINE_BYTES)).strip():
            name, _, value = line.decode("utf-8", "replace").partition(":")
            key = name.strip().lower()
            headers[key] = f"{headers[key]} {value.strip()}" if key in headers else value.strip()
        length = int(headers.get("content-length", "0"))
        block = stream.read(length)
        if len(block) < length:
            raise BadInput("the last record is torn")
        yield headers, block


def _output(headers: dict[str, str], block: bytes, waiting: _Exchanges) -> Output | None:
    """Return the page or item of a metadata record; None if it is another program's."""
    fields = msgspec.json.decode(block)
    kind = fields.get("type") if isinstance(fields, dict) else None
    if kind == "item":
        return Output(record=msgspec.convert(fields, ItemRecord))
    if kind != "page":
        return None
    ids = headers.get("warc-concurrent-to", "").split()
    wires = tuple(_wire(waiting, identity) for identity in ids if identity in waiting.responses)
    fields |= {"body": "", "body_encoding": "text", "request_headers": {}, "response_headers": {}}
    body = b""
    if wires and fields["status_code"] == _status(wires[-1].response_head):
        wire = wires[-1]
        lines = _header_lines(_RENAMED.sub(rb"\1", wire.response_head))
        fields["response_headers"] = _grouped(lines)
        sent = [(name, value) for name, value in _header_lines(wire.request_head) if name.lower() not in OWNED]
        fields["request_headers"] = _grouped(sent)
        body = _decoded(wire.response_body, lines)
        fields["body"], fields["body_encoding"] = _as_text(body, fields["encoding"])
    return Output(record=msgspec.convert(fields, PageRecord), body=body, wires=wires)


def _wire(waiting: _Exchanges, identity: str) -> WireExchange:
    response = waiting.responses[identity]
    headers, block = response["headers"], response["block"]
    head, body = _split(block)
    request_head, request_body = _split(waiting.requests.get(identity, b""))
    return WireExchange(
        request_head=request_head,
        request_body=request_body,
        response_head=head,
        response_body=body,
        ip=headers.get("warc-ip-address", ""),
        url=headers.get("warc-target-uri", ""),
        timestamp=headers.get("warc-date", ""),
        truncated="warc-truncated" in headers,
    )


def _split(block: bytes) -> tuple[bytes, bytes]:
    """Return the head of an HTTP message, with its empty line, and its body."""
    end = re.search(rb"\r?\n\r?\n", block)
    return (block[: end.end()], block[end.end() :]) if end else (block, b"")


def _status(head: bytes) -> int:
    found = re.match(rb"HTTP/[\d.]+ +(\d{3})", head)
    return int(found[1]) if found else 0


def _header_lines(head: bytes) -> list[tuple[str, str]]:
    lines = head.decode("latin-1").split("\n")[1:]
    pairs = (line.partition(":") for line in lines if ":" in line)
    return [(name, value.strip()) for name, _, value in pairs]


def _grouped(lines: list[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, value in lines:
        grouped.setdefault(name, []).append(value)
    return grouped


def _decoded(body: bytes, lines: list[tuple[str, str]]) -> bytes:
    """Return a body without its content encodings, as far as it can be decoded."""
    encodings = parse_encodings(value for name, value in lines if name.lower() == "content-encoding")
    try:
        return decode(body, encodings, _LIMITS).body
    except FetchError:
        return body


def _as_text(body: bytes, encoding: str) -> tuple[str, str]:
    """Return the body as a record holds it, and how: as text in its encoding, else as base64."""
    if encoding or not body:
        try:
            return body.decode(encoding or "utf-8").removeprefix("\ufeff"), "text"
        except (UnicodeDecodeError, LookupError):
            pass
    return base64.b64encode(body).decode(), "base64"


def rebuilt_exchange(page: PageRecord) -> WireExchange | None:
    """Return an exchange for a page whose wire bytes were not kept, from its headers and its decoded body. The method
    of the request is not known; GET stands in its place.

    None: the page has no response.
    """
    if not page.status_code:
        return None
    if page.body_encoding == "base64":
        body = base64.b64decode(page.body)
    else:
        try:
            body = page.body.encode(page.encoding or "utf-8")
        except (UnicodeEncodeError, LookupError):
            body = page.body.encode("utf-8", "replace")
    url = urlsplit(page.response_url or page.url)
    target = url.path + (f"?{url.query}" if url.query else "")
    request = [f"GET {target or '/'} HTTP/1.1", f"Host: {url.netloc}", *_lines(page.request_headers, OWNED)]
    headers = {
        name: [str(len(body))] if name.lower() == "content-length" else values
        for name, values in page.response_headers.items()
    }
    response = [f"HTTP/1.1 {page.status_code} {page.status_msg}", *_lines(headers, _NOT_STORED)]
    return WireExchange(
        request_head=_head(request),
        request_body=b"",
        response_head=_head(response),
        response_body=body,
        ip=page.ip,
        url=page.response_url or page.url,
        timestamp=page.timestamp,
        truncated=page.truncated,
    )


def _lines(headers: Mapping[str, Sequence[str]], without: Collection[str]) -> list[str]:
    return [f"{name}: {value}" for name, values in headers.items() if name.lower() not in without for value in values]


def _head(lines: Sequence[str]) -> bytes:
    """Return the head of an HTTP message. A line break in a line would end it, so it becomes a space."""
    text = "\r\n".join(re.sub(r"[\r\n]+", " ", line) for line in lines)
    return text.encode("latin-1", "replace") + b"\r\n\r\n"
