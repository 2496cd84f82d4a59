"""What leaves the system for every request: one record, with the fields Scrapy Cluster's consumers know, and ours."""

from typing import Any, Literal

import msgspec


class RedirectHop(msgspec.Struct, frozen=True):
    """One redirect: what was asked, with which status it answered."""

    url: str
    status: int


class RecordLink(msgspec.Struct, frozen=True):
    url: str
    text: str


class PageRecord(msgspec.Struct, kw_only=True):
    """A page, or why there is none. `success` false: `reason` says why, the response fields may be empty."""

    type: Literal["page"] = "page"
    appid: str
    crawlid: str
    spiderid: str
    request_id: str
    """The same on every attempt: a consumer drops a repeat by it."""
    attempt: int
    depth: int
    url: str
    """As requested."""
    response_url: str
    """Where it ended."""
    status_code: int
    """0: no answer came."""
    status_msg: str
    response_headers: dict[str, list[str]]
    request_headers: dict[str, list[str]]
    body: str
    body_encoding: Literal["text", "base64"]
    """`text` where the body decodes strictly, else `base64` of its bytes."""
    encoding: str
    content_type: str
    links: list[RecordLink]
    attrs: dict[str, Any] | None
    timestamp: str
    """UTC, ISO 8601."""
    success: bool
    reason: str
    """Empty when `success`."""
    exception: str
    redirects: list[RedirectHop]
    timings: dict[str, float]
    """Seconds: dns, connect, tls, first_byte, total."""
    ip: str
    truncated: bool


class ItemRecord(msgspec.Struct, kw_only=True):
    """What a spider extracted from a page."""

    type: Literal["item"] = "item"
    appid: str
    crawlid: str
    spiderid: str
    request_id: str
    attempt: int
    url: str
    attrs: dict[str, Any] | None
    timestamp: str
    item: dict[str, Any]


class WireExchange(msgspec.Struct, kw_only=True, frozen=True):
    """The exchange as it went over the wire, for sinks that keep it (WARC)."""

    request_head: bytes
    request_body: bytes
    response_head: bytes
    response_body: bytes
    """Content-encoded, de-chunked."""
    ip: str
    url: str
    timestamp: str
    truncated: bool


class Output(msgspec.Struct, kw_only=True):
    """One thing for the sinks: the record, its raw body, and every hop's bytes where a sink asked for them."""

    record: PageRecord | ItemRecord
    body: bytes = b""
    wires: tuple[WireExchange, ...] = ()
