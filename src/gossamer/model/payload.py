"""What travels with an entry beyond its URL, as both lanes pack it. The frontier never looks inside."""

from typing import Any

import msgspec

MOST_BYTES = (1 << 20) - (16 << 10)
"""Of a packed payload, for whoever makes a request. The frontier takes 1 MiB: what a redirect adds fits in, too."""


class Payload(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True):
    """The rest of a request: everything optional, nothing repeated that the terms already say."""

    method: str = "GET"
    body: bytes = b""
    headers: dict[str, str] | None = None
    chain: tuple[tuple[str, int], ...] = ()
    """The redirects behind it: (URL that redirected, its status), oldest first. The entry's URL is where it began."""
    location: str | None = None
    """Where the chain has led; None: fetch the entry's own URL."""
    cookies: dict[str, str] | None = None
    """Cookies set along the redirect chain; they live for the chain only."""
    request_id: str | None = None
    """Of a request that went on under another domain: the id it began with."""
    attrs: dict[str, object] | None = None
    """Overrides the terms' attrs (a spider that counts its steps)."""
    sitemap: bool = False
    """The answer is read as a sitemap."""
    scrapy: bytes | None = None
    """The rest of a Scrapy request, which only the Scrapy lane reads."""


SCRAPY_DEFAULTS: dict[str, Any] = {
    "headers": {},
    "body": b"",
    "cookies": {},
    "meta": {},
    "encoding": "utf-8",
    "priority": 0,
    "dont_filter": False,
    "flags": [],
    "cb_kwargs": {},
    "callback": None,
    "errback": None,
}
"""A Scrapy request's fields (`Request.to_dict`) where `Payload.scrapy` leaves them out. Whoever writes one, a spider's
scheduler or the import of a foreign queue, leaves out the same. Not to be changed."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Payload)
EMPTY = Payload()


def pack(payload: Payload) -> bytes | None:
    """None for a payload that says nothing."""
    return None if payload == EMPTY else _encoder.encode(payload)


def too_large(data: bytes | None) -> str:
    """Why a packed payload is not stored; empty: it is."""
    size = len(data or b"")
    return f"it takes {size:,} bytes; at most {MOST_BYTES:,} are stored" if size > MOST_BYTES else ""


def unpack(data: bytes | None) -> Payload:
    """The payload that `pack` made; raises msgspec.ValidationError for bytes of another make."""
    return EMPTY if data is None else _decoder.decode(data)
