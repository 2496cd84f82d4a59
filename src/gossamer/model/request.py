"""Requests on their way through the frontier."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec

from gossamer.model.crawl import Run, Terms


class Outcome(StrEnum):
    """What a worker reports of a lease. The first three end a request; the others send it back."""

    FETCHED = "fetched"
    FAILED = "failed"
    DROPPED = "dropped"
    RETRY = "retry"
    """Try again later, at lower priority; counts as an attempt."""
    POSTPONED = "postponed"
    """Not now, and not its fault (robots.txt cannot be had): later, at its priority, and not as an attempt."""
    RETURNED = "returned"
    """Not started; back to the front of its queue, and no attempt. Its hit is free again: nothing used it."""
    FORWARDED = "forwarded"
    """Back to the front of its domain with a new payload (a redirect that has no free hit yet)."""


class DropReason(StrEnum):
    """Why a request that entered the system, or a link that was found, is not fetched."""

    DUPLICATE = "duplicate"
    OFFSITE = "offsite"
    DEPTH = "depth"
    ROBOTS = "robots"
    BUDGET = "budget"
    STOPPED = "stopped"
    EXPIRED = "expired"
    BLACKLISTED = "blacklisted"
    BLOCKED_ADDRESS = "blocked_address"
    EXTENSION = "extension"
    FILTERED = "filtered"
    """Refused by allow or deny regex."""
    UNKNOWN_SPIDER = "unknown_spider"
    """For a spider that nobody runs."""
    NOFOLLOW = "nofollow"
    SCHEME = "scheme"
    BAD_URL = "bad_url"
    MOVED = "moved"
    """A redirect went on as another entry of the same request, under its own domain."""


class SettleResult(StrEnum):
    """What `settle` answers for each lease."""

    SETTLED = "settled"
    ALREADY = "already"
    """This worker settled it before: nothing happened now."""
    STALE_WORKER = "stale_worker"
    """The worker was taken for dead; its leases belong to others."""


MAX_DEATHS = 3
"""A request with which so many workers died is given up: recorded and settled as failed, `worker_died`, unfetched."""


@dataclass(slots=True)
class Batch:
    """URLs of one spider and domain that enter the frontier together: parallel lists, never an object per link."""

    spider: str
    domain: str
    priority: int
    depth: int
    urls: list[str] = field(default_factory=list)
    """Canonical URLs."""
    fingerprints: list[int] = field(default_factory=list)
    """Of each URL, signed 64-bit, the spider included."""
    payloads: Sequence[bytes | None] | None = None
    """What travels with each entry, opaque to the frontier (method, body, headers, redirect chain). None: nothing."""
    unfiltered: bool = False
    """Added even when seen (`dont_filter`)."""
    call: str = ""
    """A name for this addition: under the same one the same answer is given for an hour, and nothing is added twice. Of
    an unfiltered batch it is set by the frontier at the first attempt."""
    attempt: tuple[str, int] | None = None
    """Name and number of the `add` that begins with this batch, while its answer is not known. Set by the frontier."""


class Lease(msgspec.Struct, frozen=True):
    """A request handed to one worker until it settles it or dies."""

    id: int
    """Unique among the leases of its worker on its shard, whatever name it has there."""
    shard: int
    worker: str
    """The name that its worker had on its shard when it was leased."""
    run: Run
    spider: str
    domain: str
    priority: int
    depth: int
    attempt: int
    """0 at first; each retry and each reclaim adds one."""
    deaths: int
    """Number of workers that died while they held this request, at most MAX_DEATHS. A worker that was only late does not
    count."""
    url: str
    payload: bytes | None
    terms: Terms
    request_id: str
    """Fixed when the request was added, the same on every attempt."""
    identity: bytes
    """What makes the entry unique beyond spider and URL; empty: nothing does. The frontier's own business."""
    charged: float
    """When its hit was charged, at the earliest, on this process's monotonic clock: before its answer arrived."""
    ahead_seconds: float = 0.0
    """So long after that its request is to start."""
    spacing_seconds: float = 0.0
    """The even gap between two requests of its scope. 0: they may start together."""
    blacklisted: bool = False
    """Its domain is blacklisted: do not fetch it; record and settle it as dropped. No hit was charged."""

    @property
    def start(self) -> float:
        """When its request is to start, on this process's monotonic clock."""
        return self.charged + self.ahead_seconds


@dataclass(slots=True)
class Settlement:
    """What became of a lease."""

    lease: Lease
    outcome: Outcome
    reason: str = ""
    """Of `failed` and `dropped`: a short stable word, counted per crawl."""
    delay_seconds: float = 0.0
    """Of `retry` and `postponed`: not before so long from now."""
    payload: bytes | None = None
    """Of `forwarded` and `retry`: replaces the entry's payload. None keeps it."""
    drops: dict[str, int] | None = None
    """Links of this page that went nowhere, by reason; counted with the settlement, so exactly once."""


def request_id(run: Run, identity: bytes) -> str:
    """32 hex digits, the same on every attempt.

    `identity`: spider and URL, with what makes an entry unique beyond them.
    A pure function of what the entry holds, so the frontier spends no bytes on it.
    """
    name = f"{run.crawl.id.token}:{run.generation}:{run.number}:".encode() + identity
    return hashlib.blake2b(name, digest_size=16).hexdigest()


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
EMPTY_PAYLOAD = Payload()


def pack(payload: Payload) -> bytes | None:
    """None for a payload that says nothing."""
    return None if payload == EMPTY_PAYLOAD else _encoder.encode(payload)


def payload_size_error(data: bytes | None) -> str:
    """Why a packed payload is not stored; empty: it is."""
    size = len(data or b"")
    return f"it takes {size:,} bytes; at most {MOST_BYTES:,} are stored" if size > MOST_BYTES else ""


def unpack(data: bytes | None) -> Payload:
    """The payload that `pack` made; raises msgspec.ValidationError for bytes of another make."""
    return EMPTY_PAYLOAD if data is None else _decoder.decode(data)


_FORBIDDEN = frozenset("|,\n")
"""They part names from each other where several stand in one key or one field."""


def name_error(name: str) -> str:
    """Why none of them may be called that; empty: it may."""
    if _FORBIDDEN.isdisjoint(name):
        return ""
    return f"a pool, spider or egress may not contain '|', ',' or a line break: {name[:200]!r}"
