"""Records: the output of Gossamer, one for each request, and one for each item that a spider extracts.

They have the fields that consumers of Scrapy Cluster know, and more. Sinks and message schemas follow these classes.
"""

from typing import Any, Literal

import msgspec


class RedirectHop(msgspec.Struct, frozen=True):
    """One redirect: the requested URL, and the status of its response."""

    url: str
    status: int


class RecordLink(msgspec.Struct, frozen=True):
    url: str
    text: str


class PageRecord(msgspec.Struct, kw_only=True):
    """A page, or the reason why there is none: then `success` is false, and the fields of the response may be empty."""

    type: Literal["page"] = "page"
    appid: str
    crawlid: str
    spiderid: str
    request_id: str
    """Id of the request, the same on every attempt, by which a consumer recognises repeats."""
    attempt: int
    depth: int
    url: str
    """The requested URL."""
    response_url: str
    """URL of the response, after redirects."""
    status_code: int
    """0: no response came."""
    status_msg: str
    response_headers: dict[str, list[str]]
    request_headers: dict[str, list[str]]
    body: str
    body_encoding: Literal["text", "base64"]
    """`text` if the body decodes without errors, else `base64` of its bytes."""
    encoding: str
    content_type: str
    links: list[RecordLink]
    attrs: dict[str, Any] | None
    timestamp: str
    """Time in UTC, ISO 8601."""
    success: bool
    reason: str
    """Reason why there is no page; empty on success."""
    exception: str
    redirects: list[RedirectHop]
    timings: dict[str, float]
    """Seconds for `dns`, `connect`, `tls`, `first_byte` and `total`."""
    ip: str
    truncated: bool


class ItemRecord(msgspec.Struct, kw_only=True):
    """An item that a spider extracted from a page."""

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
    """A request and its response as they went over the wire, for sinks that archive them (WARC)."""

    request_head: bytes
    request_body: bytes
    response_head: bytes
    response_body: bytes
    """Still content-encoded, but de-chunked."""
    ip: str
    url: str
    timestamp: str
    truncated: bool


class Output(msgspec.Struct, kw_only=True):
    """One record for the sinks, with its raw body, and with the wire bytes of every hop if a sink wants them."""

    record: PageRecord | ItemRecord
    body: bytes = b""
    wires: tuple[WireExchange, ...] = ()
