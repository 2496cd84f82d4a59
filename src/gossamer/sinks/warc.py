"""WARC 1.1 records (ISO 28500:2017): what went over the wire, and beside it what the crawl knows.

For every exchange of a page, redirects included, a `request` and a `response` record, concurrent to each other; for
the page one `metadata` record, the `PageRecord` as JSON without what the response holds. A page that was never
answered, and an item, is a `metadata` record alone.
"""

import base64
import hashlib
import re
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import msgspec

from gossamer import __version__
from gossamer.model.record import ItemRecord, Output, PageRecord, WireExchange
from gossamer.sinks.jsonl import encode_value

_IN_THE_RESPONSE = {"body", "body_encoding", "request_headers", "response_headers"}
"""Fields of a page that its other records hold, and the metadata record does not repeat."""

# The stored body is what the chunks held, so a reader that believed this header would look for chunks in vain.
_TRANSFER_ENCODING = re.compile(rb"^(transfer-encoding[ \t]*:)", re.IGNORECASE | re.MULTILINE)
_UNSAFE = re.compile(r"[^!-~]")


def warc_units(outputs: Sequence[Output]) -> list[bytes]:
    """Every record of the batch, one unit each, so that each is a member of its own when compressed."""
    units: list[bytes] = []
    for output in outputs:
        responses: list[str] = []
        for wire in output.wires:
            units.extend(_exchange(wire, responses))
        units.append(_metadata(output.record, responses))
    return units


def info_units() -> list[bytes]:
    """The `warcinfo` record that a file begins with."""
    fields = {
        "software": f"gossamer/{__version__}",
        "format": "WARC File Format 1.1",
        "conformsTo": "https://iipc.github.io/warc-specifications/specifications/warc-format/warc-1.1/",
    }
    block = "".join(f"{name}: {value}\r\n" for name, value in fields.items()).encode()
    headers = {"WARC-Date": _date(""), "Content-Type": "application/warc-fields"}
    return [_record("warcinfo", new_id(), headers, block)]


def digest(block: bytes) -> str:
    """SHA-1 in base32, the form that WARC tools agree on."""
    return "sha1:" + base64.b32encode(hashlib.sha1(block, usedforsecurity=False).digest()).decode()


def new_id() -> str:
    """A record's identity."""
    return f"<urn:uuid:{uuid.uuid4()}>"


def _exchange(wire: WireExchange, responses: list[str]) -> Iterator[bytes]:
    """The request and the response of one exchange; the response's identity is added to `responses`."""
    request_id, response_id = new_id(), new_id()
    common = {"WARC-Target-URI": _uri(wire.url), "WARC-Date": _date(wire.timestamp)}
    if wire.ip:
        common["WARC-IP-Address"] = wire.ip
    if wire.response_head:
        head = _TRANSFER_ENCODING.sub(rb"X-Crawler-\1", _ended(wire.response_head))
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
        yield _record("request", request_id, headers, _ended(wire.request_head) + wire.request_body)


def _metadata(record: PageRecord | ItemRecord, responses: Sequence[str]) -> bytes:
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
    lines = ["WARC/1.1", f"WARC-Type: {kind}", f"WARC-Record-ID: {record_id}"]
    lines.extend(f"{name}: {value}" for name, value in headers.items())
    lines.extend(f"WARC-Concurrent-To: {other}" for other in concurrent_to)
    lines.append(f"WARC-Block-Digest: {digest(block)}")
    lines.append(f"Content-Length: {len(block)}")
    return b"".join(("\r\n".join(lines).encode("ascii"), b"\r\n\r\n", block, b"\r\n\r\n"))


def _uri(url: str) -> str:
    """The URL such that it can neither end its line nor leave ASCII, whatever a server made of it."""
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode("utf-8", "replace")), url)


def _date(timestamp: str) -> str:
    """A time in the form of WARC 1.1: UTC, microseconds, Z. Now, where there is none."""
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        moment = datetime.now(UTC)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="microseconds") + "Z"


def _ended(head: bytes) -> bytes:
    """The HTTP head with the empty line that separates it from the body."""
    if head.endswith((b"\r\n\r\n", b"\n\n")):
        return head
    return head.rstrip(b"\r\n") + b"\r\n\r\n"
