"""WARC 1.1 records (ISO 28500:2017) of pages and items, and the framing of a WARC file.

Every HTTP exchange of a page, redirects included, becomes a `request` and a `response` record, concurrent to each
other. The page becomes one `metadata` record: the `PageRecord` as JSON, without what the response record holds. A page
without a response, and an item, is a `metadata` record alone.

Fixed by the standard: names and values of headers, and the line breaks between the parts of a record. Safe to change:
the fields of `warcinfo` and the order of headers. `WarcRecords` must recognise every record that `_record` makes, or
the next writer cuts it off as torn.
"""

import base64
import hashlib
import re
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from gossamer import __version__
from gossamer.model.record import ItemRecord, Output, PageRecord, WireExchange
from gossamer.sinks.framing import RECENT, Tail, read_at
from gossamer.sinks.jsonl import encode_value

_IN_THE_RESPONSE = {"body", "body_encoding", "request_headers", "response_headers"}
"""Fields of a page that its request and response records hold, so that the metadata record leaves them out. May be
shortened, which takes space; not extended, because readers look for all other fields in the metadata record."""

_TRANSFER_ENCODING = re.compile(rb"^(transfer-encoding[ \t]*:)", re.IGNORECASE | re.MULTILINE)
"""Header that is renamed, because the stored body is de-chunked: a reader would look for chunks in vain."""
_RECORD_END = b"\r\n\r\n"  # behind the block of every record
_UNSAFE = re.compile(r"[^!-~]")
"""Everything but printable ASCII, which a header line cannot hold."""


def warc_units(outputs: Sequence[Output]) -> list[bytes]:
    """Return the records of a batch, one unit each, so that each becomes a gzip member of its own."""
    units: list[bytes] = []
    for output in outputs:
        responses: list[str] = []
        for wire in output.wires:
            units.extend(_exchange(wire, responses))
        units.append(_metadata(output.record, responses))
    return units


def warcinfo_units() -> list[bytes]:
    """Return the `warcinfo` record that a file begins with, as its only unit."""
    fields = {
        "software": f"gossamer/{__version__}",
        "format": "WARC File Format 1.1",
        "conformsTo": "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
    }
    block = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()
    headers = {"WARC-Date": _date(""), "Content-Type": "application/warc-fields"}
    return [_record("warcinfo", new_id(), headers, block)]


def digest(block: bytes) -> str:
    """Return the SHA-1 of a block in base32, the form that WARC tools use."""
    return "sha1:" + base64.b32encode(hashlib.sha1(block, usedforsecurity=False).digest()).decode()


def new_id() -> str:
    """Return a new WARC-Record-ID."""
    return f"<urn:uuid:{uuid.uuid4()}>"


def _exchange(wire: WireExchange, responses: list[str]) -> Iterator[bytes]:
    """Yield the records of an exchange, and append the id of its response record to `responses`."""
    request_id, response_id = new_id(), new_id()
    common = {"WARC-Target-URI": _uri(wire.url), "WARC-Date": _date(wire.timestamp)}
    if wire.ip:
        common["WARC-IP-Address"] = wire.ip
    if wire.response_head:
        head = _TRANSFER_ENCODING.sub(rb"X-Crawler-\1", _with_empty_line(wire.response_head))
        headers = common | {"Content-Type": "application/http; msgtype=response"}
        if wire.request_head:
            headers["WARC-Concurrent-To"] = request_id
        if head.startswith(b"HTTP/1."):
            headers["WARC-Protocol"] = head[:8].decode("latin-1").lower()
        if wire.truncated:
            headers["WARC-Truncated"] = "length"
        headers["WARC-Payload-Digest"] = digest(wire.response_body)
        responses.append(response_id)
        yield _record("response", response_id, headers, head + wire.response_body)
    if wire.request_head:
        headers = common | {"Content-Type": "application/http; msgtype=request"}
        if wire.response_head:
            headers["WARC-Concurrent-To"] = response_id
        if wire.request_body:
            headers["WARC-Payload-Digest"] = digest(wire.request_body)
        yield _record("request", request_id, headers, _with_empty_line(wire.request_head) + wire.request_body)


def _metadata(record: PageRecord | ItemRecord, responses: Sequence[str]) -> bytes:
    """Return the record of a page or item. `responses`: ids of its response records."""
    if isinstance(record, PageRecord):
        uri = record.response_url or record.url
        fields = {name: getattr(record, name) for name in record.__struct_fields__ if name not in _IN_THE_RESPONSE}
        block = encode_value(fields)
    else:
        uri = record.url
        block = encode_value(msgspec.structs.asdict(record))
    headers = {
        "WARC-Target-URI": _uri(uri),
        "WARC-Date": _date(record.timestamp),
        "Content-Type": "application/json",
    }
    return _record("metadata", new_id(), headers, block, concurrent_to=responses)


def _record(
    kind: str, record_id: str, headers: dict[str, str], block: bytes, *, concurrent_to: Sequence[str] = ()
) -> bytes:
    """Return a WARC record: its headers with these and those that every record has, and its block (the contents).

    `concurrent_to`: ids of the records of the same exchange."""
    lines = ["WARC/1.1", f"WARC-Type: {kind}", f"WARC-Record-ID: {record_id}"]
    lines.extend(f"{name}: {value}" for name, value in headers.items())
    lines.extend(f"WARC-Concurrent-To: {other}" for other in concurrent_to)
    lines.append(f"WARC-Block-Digest: {digest(block)}")
    lines.append(f"Content-Length: {len(block)}")
    return b"".join(("\r\n".join(lines).encode("ascii"), b"\r\n\r\n", block, _RECORD_END))


def _uri(url: str) -> str:
    """Return the URL with everything but printable ASCII percent-encoded, so that it cannot end its header line."""
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace")), url)


def _date(timestamp: str) -> str:
    """Return a timestamp in the form of WARC 1.1 (UTC, microseconds, Z); the present time if it is none."""
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        moment = datetime.now(UTC)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="microseconds") + "Z"


def _with_empty_line(head: bytes) -> bytes:
    """Return an HTTP head with the empty line that separates it from the body."""
    if head.endswith((b"\r\n\r\n", b"\n\n")):
        return head
    return head.rstrip(b"\r\n") + b"\r\n\r\n"


_USUAL_HEADER_BYTES = 1024
"""Bytes that are read first to find the end of a record's header. Free to change."""
_MAX_HEADER_BYTES = 65_536
"""Length up to which a header is recognised. May be raised. Must exceed the longest header that `_record` makes, which
has a URL (at most 8 KiB) and a line for each redirect: a longer one would count as torn and be cut off."""
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_DIGEST = re.compile(rb"\r\nwarc-block-digest:[ \t]*sha1:([A-Z2-7]{32})[ \t]*\r\n", re.IGNORECASE)
"""SHA-1 in base32. Records with a digest of another kind, as other programs write them, are not checked."""


class WarcRecords:
    """Framing of an uncompressed WARC file: each unit is a record."""

    def accepts(self, head: bytes) -> bool:
        return b"WARC/".startswith(head[:5])

    def pack(self, units: Sequence[bytes]) -> bytes:
        return b"".join(units)

    def count(self, fd: int, start: int, end: int) -> int:
        return 0

    def tail(self, fd: int, start: int, size: int, *, verify: bool) -> Tail:
        offset = start
        recent: deque[int] = deque()  # offsets of the records in the last RECENT bytes
        while offset < size:
            end = _end(fd, offset, size)
            if end < 0:
                break
            recent.append(offset)
            offset = end
            while len(recent) > 1 and recent[0] < offset - RECENT:
                recent.popleft()
        if verify:
            for begin in recent:
                if not _is_sound(fd, begin):
                    return Tail(begin)
        return Tail(offset)


def _head(fd: int, offset: int) -> tuple[bytes, int]:
    """Return a record's header with its last line break, and the length of the header with the empty line.

    The length is -1 where there is no record.
    """
    text = read_at(fd, offset, _USUAL_HEADER_BYTES)
    if b"\r\n\r\n" not in text:
        text = read_at(fd, offset, _MAX_HEADER_BYTES)
    length = text.find(b"\r\n\r\n")
    return (text[: length + 2], length + 4) if text.startswith(b"WARC/") and length > 0 else (b"", -1)


def _end(fd: int, offset: int, size: int) -> int:
    """Return the end of the record at `offset`; -1 if the record is torn."""
    head, length = _head(fd, offset)
    found = _LENGTH.search(head)
    if found is None:
        return -1
    end = offset + length + int(found[1]) + len(_RECORD_END)
    return end if end <= size and read_at(fd, end - len(_RECORD_END), len(_RECORD_END)) == _RECORD_END else -1


def _is_sound(fd: int, offset: int) -> bool:
    """Return whether the block of a record has the digest that its header states; True without such a digest."""
    head, length = _head(fd, offset)
    expected = _DIGEST.search(head)
    content = _LENGTH.search(head)
    if expected is None or content is None:
        return True
    block = read_at(fd, offset + length, int(content[1]))
    return digest(block) == f"sha1:{expected[1].decode().upper()}"
