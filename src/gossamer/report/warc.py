"""Reads the pages of a WARC file as fields of page records.

A WARC that Gossamer wrote has a `metadata` record for each page, with the record's fields as JSON, behind the exchange
that fetched it (see `sinks/warc.py`). In an archive of another program, each `response` record counts as a page without
depth, timings and redirects. Safe to change: which fields of foreign archives are used. Fixed: memory is bounded by the
largest page with its redirects, because archives are larger than memory.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import msgspec

from gossamer.errors import FetchError
from gossamer.extract.encoding import decode as decode_text
from gossamer.fetch.decode import decode, parse_encodings
from gossamer.fetch.exchange import ResponseLimits

_MAX_HEADER_LINES = 200
"""Header lines of a record that are kept. May be changed: records have about ten."""
_MAX_HELD = 32
"""Exchanges that are held until their page's record comes. Must exceed the number of redirects that are followed."""
_PIECE_BYTES = 1 << 20
_STATUS = re.compile(rb"HTTP/\d(?:\.\d)?[ \t]+(\d{3})")
_ID = re.compile(r"<[^<>]+>")
_LIMITS = ResponseLimits()


@dataclass(slots=True)
class _Block:
    """One WARC record."""

    kind: str
    headers: dict[str, list[str]] = field(default_factory=dict)
    content: bytes = b""

    def first(self, name: str) -> str:
        """Return the first value of a header; empty if there is none."""
        return self.headers.get(name, [""])[0]


def read_warc(stream: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the fields of each page, and of each item that Gossamer wrote. Raises EOFError where the file is torn."""
    own = False
    held: dict[str, _Block] = {}
    for block in _blocks(stream):
        if block.kind == "warcinfo":
            own = b"software: gossamer/" in block.content
        elif block.kind == "response":
            if not own:
                yield _foreign(block)
                continue
            held[block.first("warc-record-id")] = block
            if len(held) > _MAX_HELD:
                held.pop(next(iter(held)))
        elif block.kind == "metadata" and block.first("content-type") == "application/json":
            ids = [found for value in block.headers.get("warc-concurrent-to", []) for found in _ID.findall(value)]
            exchanges = [held[one] for one in ids if one in held]
            yield _own(block, exchanges[-1] if exchanges else None)
            held.clear()


def _own(metadata: _Block, response: _Block | None) -> dict[str, Any]:
    """Return the record of a page, with the body of its last response."""
    try:
        fields = msgspec.json.decode(metadata.content)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        fields = None
    if not isinstance(fields, dict):
        return {"type": "unknown"}
    if response is not None and "body" not in fields:
        _, headers, body = _message(response.content)
        fields["body"], _ = _body(headers, body)
    return fields


def _foreign(response: _Block) -> dict[str, Any]:
    """Return what a response of another program's archive says of its page."""
    status, headers, body = _message(response.content)
    text, content_type = _body(headers, _dechunked(headers, body))
    failed = status >= 400 or status < 100
    return {
        "url": response.first("warc-target-uri").strip("<>"),
        "status_code": status,
        "content_type": content_type,
        "body": text,
        "timestamp": response.first("warc-date"),
        "success": not failed,
        "reason": f"http_{status}" if failed else "",
        "truncated": "warc-truncated" in response.headers,
    }


def _blocks(stream: BinaryIO) -> Iterator[_Block]:
    """Yield the records of a WARC file. Only the content of kinds that are used is kept."""
    while version := stream.readline():
        if not version.strip():
            continue
        if not version.startswith(b"WARC/"):
            raise EOFError("not a WARC record")
        headers: dict[str, list[str]] = {}
        for _ in range(_MAX_HEADER_LINES):
            line = stream.readline()
            if not line.strip():
                break
            name, _, value = line.decode("utf-8", "replace").partition(":")
            headers.setdefault(name.strip().lower(), []).append(value.strip())
        block = _Block(headers.get("warc-type", [""])[0], headers)
        length = block.first("content-length")
        if not length.isdecimal():
            raise EOFError("a WARC record without its length")
        if block.kind in ("warcinfo", "metadata") or _is_http_response(block):
            block.content = _read(stream, int(length))
            yield block
        else:
            for at in range(0, int(length), _PIECE_BYTES):
                _read(stream, min(_PIECE_BYTES, int(length) - at))


def _is_http_response(block: _Block) -> bool:
    return block.kind == "response" and block.first("content-type").lower().startswith("application/http")


def _read(stream: BinaryIO, size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        raise EOFError("a torn WARC record")
    return content


def _message(block: bytes) -> tuple[int, dict[str, list[str]], bytes]:
    """Return the status, the headers by name in lower case, and the body of an HTTP response."""
    head, _, body = block.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    found = _STATUS.match(lines[0])
    headers: dict[str, list[str]] = {}
    for line in lines[1:]:
        name, _, value = line.decode("latin-1").partition(":")
        headers.setdefault(name.strip().lower(), []).append(value.strip())
    return int(found[1]) if found else 0, headers, body


def _body(headers: dict[str, list[str]], wire: bytes) -> tuple[str, str]:
    """Return a body as text, without its content encoding, and its content type."""
    content_type = headers.get("content-type", [""])[0]
    try:
        body = decode(wire, parse_encodings(headers.get("content-encoding", [])), _LIMITS).body
    except FetchError:
        return "", content_type
    return decode_text(body, content_type).text if body else "", content_type


def _dechunked(headers: dict[str, list[str]], body: bytes) -> bytes:
    """Return a body without its chunks, as far as they are whole. Archives keep them as they came."""
    if "chunked" not in headers.get("transfer-encoding", [""])[0].lower():
        return body
    parts: list[bytes] = []
    at = 0
    while (end := body.find(b"\r\n", at)) >= 0:
        try:
            size = int(body[at:end].partition(b";")[0], 16)
        except ValueError:
            return b"".join(parts) or body  # some programs remove the chunks and keep the header
        if size <= 0:
            break
        parts.append(body[end + 2 : end + 2 + size])
        at = end + 2 + size + 2
    return b"".join(parts)
