"""WARC 1.1 records (ISO 28500:2017) of pages and items: written, framed in a file, and read back.

Every HTTP exchange of a page, redirects included, becomes a `request` and a `response` record, concurrent to each
other. The page becomes one `metadata` record: the `PageRecord` as JSON, without what the response record holds. A page
without a response, and an item, is a `metadata` record alone. Assets, the files that pages embed or link, are written
like pages, and their repeated payloads as `revisit` records. So is an answer that says that a page is as it was.

Fixed by the standard: names and values of headers, and the line breaks between the parts of a record. `WarcRecords`
must recognise every record that `_record` makes, or the next writer cuts it off as torn; `read_pages` must find the
parts of a page where `warc_units` puts them.
"""

import base64
import hashlib
import re
import uuid
from collections import OrderedDict, deque
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, BinaryIO, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from gossamer import __version__
from gossamer.errors import BadInput, FetchError
from gossamer.fetch.decode import decode, parse_encodings
from gossamer.fetch.exchange import ResponseLimits
from gossamer.fetch.request import OWNED
from gossamer.model.assets import ASSET_SPIDER
from gossamer.model.json_codec import encode_value
from gossamer.model.record import ItemRecord, Output, PageRecord, WireExchange
from gossamer.sinks.framing import RECENT, Tail, read_at

_IN_THE_RESPONSE = {"body", "body_encoding", "request_headers", "response_headers"}
"""Fields of a page that its request and response records hold, so that the metadata record leaves them out. May be
shortened, which takes space; not extended, because readers look for all other fields in the metadata record."""

_TRANSFER_ENCODING = re.compile(rb"^(transfer-encoding[ \t]*:)", re.IGNORECASE | re.MULTILINE)
"""Header that is renamed, because the stored body is de-chunked: a reader would look for chunks in vain."""
_HTTP_2 = b"HTTP/2 "
"""Beginning of a response by HTTP/2."""
_SAME_PAYLOAD = "http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
_NOT_MODIFIED = "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
"""Profiles of revisit records. Fixed by the standard."""
_CONDITION = re.compile(rb"^(if-none-match|if-modified-since)[ \t]*:", re.IGNORECASE | re.MULTILINE)
_RECORD_END = b"\r\n\r\n"  # behind the block of every record
_UNSAFE = re.compile(r"[^!-~]")
"""Everything but printable ASCII, which a header line cannot hold."""

_PAYLOADS_REMEMBERED = 100_000
"""Payloads of assets that a process remembers for one archive, at about 300 bytes each. What is forgotten is stored as
a whole again."""


class _StoredPayload(NamedTuple):
    """The response that has a payload."""

    request_id: str
    record_id: str
    uri: str
    date: str


class WarcEncoder:
    """Encodes the batches that one process writes to one archive.

    An asset (a file that a page embeds or links) whose payload this process has written before, under another URL,
    becomes a `revisit` record, which refers to that response instead of repeating it.
    """

    def __init__(self) -> None:
        self._payloads: OrderedDict[str, _StoredPayload] = OrderedDict()
        """By payload digest; the first that was stored at the beginning."""

    def units(self, outputs: Sequence[Output]) -> list[bytes]:
        """Return the records of a batch, one unit each, so that each becomes a gzip member of its own."""
        units: list[bytes] = []
        for output in outputs:
            responses: list[str] = []
            for wire in output.wires:
                payload = digest(wire.response_body) if wire.response_head else ""
                may_repeat = output.asset is not None and bool(wire.response_body) and not wire.truncated
                stored = self._stored(payload, output.record.request_id) if may_repeat else None
                units.extend(_exchange(wire, payload, responses, stored, output.captured))
                if may_repeat and stored is None and responses:
                    self._remember(payload, wire, output.record.request_id, responses[-1])
            units.append(_metadata(output, responses))
        return units

    def _stored(self, payload: str, request_id: str) -> _StoredPayload | None:
        """Return the response that has the payload of this digest; None: no other request has got it. A batch that
        could not be written comes again, and its own responses must be whole then, too."""
        stored = self._payloads.get(payload)
        return None if stored is None or stored.request_id == request_id else stored

    def _remember(self, payload: str, wire: WireExchange, request_id: str, record_id: str) -> None:
        """Remember the response that has the payload of this digest."""
        self._payloads[payload] = _StoredPayload(request_id, record_id, _uri(wire.url), _date(wire.timestamp))
        if len(self._payloads) > _PAYLOADS_REMEMBERED:
            self._payloads.popitem(last=False)


def warc_units(outputs: Sequence[Output]) -> list[bytes]:
    """Return the records of a batch, one unit each, without a look at earlier batches."""
    return WarcEncoder().units(outputs)


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


def _exchange(
    wire: WireExchange, payload: str, responses: list[str], stored: _StoredPayload | None, captured: float
) -> Iterator[bytes]:
    """Yield the records of an exchange, and append the id of its response record to `responses`.

    `payload`: digest of the response's body. `stored`: another response with the same payload, to which this one
    refers. None: there is none. `captured`: Unix time of the response that a 304 confirms; 0: it is not known."""
    request_id, response_id = new_id(), new_id()
    common = {"WARC-Target-URI": _uri(wire.url), "WARC-Date": _date(wire.timestamp)}
    if wire.ip:
        common["WARC-IP-Address"] = wire.ip
    if wire.response_head:
        head = _TRANSFER_ENCODING.sub(rb"X-Crawler-\1", _with_empty_line(wire.response_head))
        headers = common | {"Content-Type": "application/http; msgtype=response"}
        if wire.request_head:
            headers["WARC-Concurrent-To"] = request_id
        if head.startswith(_HTTP_2):
            # Readers of archives know the form of HTTP/1.1 only, in which browsers' archives have such responses, too.
            headers["WARC-Protocol"] = "h2"
            head = b"HTTP/1.1 " + head.removeprefix(_HTTP_2)
        elif head.startswith(b"HTTP/1."):
            headers["WARC-Protocol"] = head[: len("HTTP/1.1")].decode("latin-1").lower()
        if wire.truncated:
            headers["WARC-Truncated"] = "length"
        responses.append(response_id)
        if _status(head) == 304 and _CONDITION.search(wire.request_head):
            headers["WARC-Profile"] = _NOT_MODIFIED
            headers["WARC-Refers-To-Target-URI"] = _uri(wire.url)
            if captured:
                headers["WARC-Refers-To-Date"] = _date(datetime.fromtimestamp(captured, UTC).isoformat())
            yield _record("revisit", response_id, headers, head)
        elif stored is None:
            headers["WARC-Payload-Digest"] = payload
            yield _record("response", response_id, headers, head + wire.response_body)
        else:
            headers["WARC-Payload-Digest"] = payload
            headers["WARC-Profile"] = _SAME_PAYLOAD
            headers["WARC-Refers-To"] = stored.record_id
            headers["WARC-Refers-To-Target-URI"] = stored.uri
            headers["WARC-Refers-To-Date"] = stored.date
            yield _record("revisit", response_id, headers, head)
    if wire.request_head:
        headers = common | {"Content-Type": "application/http; msgtype=request"}
        if wire.response_head:
            headers["WARC-Concurrent-To"] = response_id
        if wire.request_body:
            headers["WARC-Payload-Digest"] = digest(wire.request_body)
        yield _record("request", request_id, headers, _with_empty_line(wire.request_head) + wire.request_body)


def _metadata(output: Output, responses: Sequence[str]) -> bytes:
    """Return the record of a page, asset or item. `responses`: ids of its response records."""
    record = output.record
    if isinstance(record, PageRecord):
        uri = record.response_url or record.url
        fields = {name: getattr(record, name) for name in record.__struct_fields__ if name not in _IN_THE_RESPONSE}
        if output.asset is not None:
            fields["asset"] = {"kind": output.asset.kind, "referrer": output.asset.referrer}
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
"""Bytes that are read first to find the end of a record's header. A longer header is read again, so a value below the
usual length makes every check slower."""
_MAX_HEADER_BYTES = 65_536
"""Length up to which a header is recognised. Must exceed the longest header that `_record` makes, which has a URL (at
most 8 KiB) and a line for each redirect: a longer one would count as torn and be cut off."""

# Headers of a record that its reader needs.
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d+)[ \t]*\r\n", re.IGNORECASE)
_DIGEST = re.compile(rb"\r\nwarc-block-digest:[ \t]*sha1:([A-Z2-7]{32})[ \t]*\r\n", re.IGNORECASE)
"""SHA-1 in base32. Records with a digest of another kind, as other programs write them, are not checked."""


class WarcRecords:
    """Framing of an uncompressed WARC file: each unit is a record. Implements Framing (sinks/framing.py)."""

    def accepts(self, head: bytes) -> bool:
        return b"WARC/".startswith(head[: len("WARC/")])

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


# --- reading ----------------------------------------------------------------------------------------------------------

_LIMITS = ResponseLimits(body_bytes=2**31, bomb_ratio=2000)
"""Bodies in an archive have passed the crawl's own limits."""
_MAX_LINE_BYTES = 65_536
"""Length of the longest header line that is read."""
_NOT_STORED = frozenset({"content-encoding", "transfer-encoding"})
"""Headers that do not fit a body without its encodings, in lower case. Must hold all that describe its form."""
_RENAMED = re.compile(rb"^x-crawler-(transfer-encoding[ \t]*:)", re.IGNORECASE | re.MULTILINE)
"""Header as `_exchange` has renamed it. Must match what that writes."""


class _Exchanges(msgspec.Struct):
    """The exchanges before a metadata record, by the id of the response."""

    responses: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    requests: dict[str, bytes] = msgspec.field(default_factory=dict)
    """Head and body of each request, by the id of its response, or by its own where there is none."""


def read_pages(stream: BinaryIO) -> Generator[Output, None, int]:
    """Yield the pages and items of a decompressed archive, not its assets. Return the number of responses that are not
    ours."""
    waiting = _Exchanges()
    foreign = 0
    for headers, block in _records(stream):
        kind = headers.get("warc-type", "")
        identity = headers.get("warc-record-id", "")
        is_response = kind == "response" or (kind == "revisit" and headers.get("warc-profile") == _NOT_MODIFIED)
        if is_response and headers.get("content-type", "").startswith("application/http"):
            waiting.responses[identity] = {"headers": headers, "block": block}
        elif kind == "request":
            waiting.requests[headers.get("warc-concurrent-to", identity)] = block
        elif kind == "metadata" and headers.get("content-type") == "application/json":
            output = _output(headers, block, waiting)
            if output is not None and output.record.spiderid == ASSET_SPIDER:
                waiting = _Exchanges()  # no page: assets stay in the archive
            elif output is not None:
                foreign += len(waiting.responses) - sum(bool(wire.response_head) for wire in output.wires)
                waiting = _Exchanges()
                yield output
        if max(len(waiting.responses), len(waiting.requests)) > _MOST_EXCHANGES:  # another program's archive
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
    try:
        fields = msgspec.json.decode(block)
        kind = fields.get("type") if isinstance(fields, dict) else None
        if kind == "item":
            return Output(record=msgspec.convert(fields, ItemRecord))
        if kind != "page":
            return None
        fields |= {"body": "", "body_encoding": "text", "request_headers": {}, "response_headers": {}}
        record = msgspec.convert(fields, PageRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    ids = headers.get("warc-concurrent-to", "").split()
    wires = tuple(_wire(waiting, identity) for identity in ids if identity in waiting.responses)
    body = b""
    if wires and record.status_code == _status(wires[-1].response_head):
        wire = wires[-1]
        lines = _header_lines(_RENAMED.sub(rb"\1", wire.response_head))
        record.response_headers = _grouped(lines)
        sent = [(name, value) for name, value in _header_lines(wire.request_head) if name.lower() not in OWNED]
        record.request_headers = _grouped(sent)
        body = _decoded(wire.response_body, lines)
        record.body, record.body_encoding = _as_text(body, record.encoding)
    return Output(record=record, body=body, wires=wires)


def _wire(waiting: _Exchanges, identity: str) -> WireExchange:
    """Return the exchange whose response has this record id."""
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


def _as_text(body: bytes, encoding: str) -> tuple[str, Literal["text", "base64"]]:
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
        request_head=_message_head(request),
        request_body=b"",
        response_head=_message_head(response),
        response_body=body,
        ip=page.ip,
        url=page.response_url or page.url,
        timestamp=page.timestamp,
        truncated=page.truncated,
    )


def _lines(headers: Mapping[str, Sequence[str]], without: Collection[str]) -> list[str]:
    return [f"{name}: {value}" for name, values in headers.items() if name.lower() not in without for value in values]


def _message_head(lines: Sequence[str]) -> bytes:
    """Return the head of an HTTP message. A line break in a line would end it, so it becomes a space."""
    text = "\r\n".join(re.sub(r"[\r\n]+", " ", line) for line in lines)
    return text.encode("latin-1", "replace") + b"\r\n\r\n"
