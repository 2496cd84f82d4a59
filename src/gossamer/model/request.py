"""Requests in the frontier: batches to add, leases, settlements, and the payload that travels with a request.

The frontier is the store of waiting requests; an entry is a request in it. A worker leases a request, and settles it:
reports its outcome. The rules for each:
- Outcome: the frontier's Lua scripts know the values. Fixed.
- DropReason: the frontier stores the values, and clients read them. A reason may be added, none renamed.
- Payload: stored by field name, without defaults. A field with a default may be added; names and defaults are fixed.
- Batch, Lease and Settlement exist only in memory: they may change with their users.
"""

import hashlib
import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from gossamer.model.assets import ASSET_SPIDER, Asset
from gossamer.model.crawl import Run, Terms


class Outcome(StrEnum):
    """Result of a lease (a request that one worker holds), as the worker reports it. The first three finish the
    request; the others send it back."""

    FETCHED = "fetched"
    FAILED = "failed"
    DROPPED = "dropped"
    RETRY = "retry"
    """Fetch again later, at lower priority. Counts as an attempt."""
    POSTPONED = "postponed"
    """Fetch later at the same priority, because something else failed (robots.txt is unavailable). Not an attempt."""
    RETURNED = "returned"
    """The worker has not started it: back to the front of its queue. Not an attempt, and its hit (the charge for one
    request to its domain) was not used."""
    FORWARDED = "forwarded"
    """Back to the front of its domain with a new payload (a redirect for which there is no free hit yet)."""
    SWITCHED = "switched"
    """To the front of its domain in the other lane: a page that was fetched plainly and is to be rendered, or the other
    way round. Not an attempt."""


class DropReason(StrEnum):
    """Reason why a request in the frontier, or a discovered link, is not fetched."""

    DUPLICATE = "duplicate"
    OFFSITE = "offsite"
    """Outside the domains, hosts and prefixes of its submission."""
    DEPTH = "depth"
    ROBOTS = "robots"
    BUDGET = "budget"
    """A limit of pages, or of waiting requests of a domain, is used up."""
    MAX_ASSETS = "max_assets"
    """An asset, a file that a page embeds or links, beyond the limit of assets."""
    STOPPED = "stopped"
    EXPIRED = "expired"
    BLACKLISTED = "blacklisted"
    BLOCKED_ADDRESS = "blocked_address"
    """Its host has an address that is not on the public internet."""
    EXTENSION = "extension"
    PATTERN = "pattern"
    """Its path repeats too many directories, or too many URLs are of its pattern."""
    FILTERED = "filtered"
    """Refused by an allow or deny expression."""
    UNKNOWN_SPIDER = "unknown_spider"
    """No worker has the spider."""
    NOFOLLOW = "nofollow"
    SCHEME = "scheme"
    """Neither http nor https."""
    BAD_URL = "bad_url"
    SITEMAP_LIMIT = "sitemap_limit"
    """Beyond the 50,000 URLs that a sitemap may list, or in an index of sitemaps that another index names."""
    MOVED = "moved"
    """The request continues as another entry, under the domain that it was redirected to."""
    LOST = "lost"
    """The frontier's server lost it, with a part of its append-only file."""


MAX_PRIORITY = 60_000
"""Largest priority of a Scrapy request, and the negative of the smallest; others are clipped.

May be smaller; larger only up to 65,000 (LOWEST_PRIORITY in settle.lua). The frontier orders queues by one float, which
is exact up to 53 bits: 36 bits for the turns of queues with the same priority leave 17 bits for the priority, and the
largest floats have another meaning (RESTING in agendas.lua)."""
MAX_DEPTH = 2**16 - 1
"""Largest depth. Must not change: the frontier stores a depth in two bytes."""
MAX_DEATHS = 3
"""A request on which this many workers died is not fetched again: it is recorded and settled as failed, with the reason
`worker_died`. May be smaller, not larger: an entry has two bits for the number (`include/deaths.lua`)."""


class Batch(msgspec.Struct):
    """URLs of one spider and domain that are added together. It has parallel lists, to make no object for each link."""

    spider: str
    domain: str
    priority: int
    depth: int
    urls: list[str] = msgspec.field(default_factory=list)
    """Canonical URLs."""
    fingerprints: list[int] = msgspec.field(default_factory=list)
    """Fingerprint of each URL, spider included: signed, 64 bits (see policy/urls.py)."""
    payloads: Sequence[bytes | None] | None = None
    """Packed `Payload` of each entry, which the frontier does not read. None: no entry has one."""
    unfiltered: bool = False
    """True: add the URLs even if they were seen before (`dont_filter`)."""
    call: str = ""
    """Name of this addition: for an hour, a repeat under the same name gets the same result and adds nothing. The
    frontier sets it at the first attempt if `unfiltered`, because seen URLs do not prevent a second addition then."""
    attempt: tuple[str, int] | None = None
    """Name and number of the `add` call that begins with this batch; None once its result is known. Set by the
    frontier: when a caller repeats a call that failed, the frontier recognises it by these, and returns the result of
    the first call instead of reporting its URLs as duplicates."""
    render: bool = False
    """True: the URLs are to be rendered. Only workers with a browser lease them (lane `browser`). It makes no other
    request of a URL: one that was added without it is a duplicate."""


class Lease(msgspec.Struct, frozen=True):
    """A request that one worker holds until it settles the request or is declared dead."""

    id: int
    """Unique among the leases of the worker on the shard, through all its sessions."""
    shard: int
    """Number of the server that has the request."""
    worker: str
    """Name of the worker's session on the shard when the request was leased."""
    run: Run
    spider: str
    domain: str
    priority: int
    depth: int
    attempt: int
    """0 at first. Each retry adds one, and so does each worker that leaves or is declared dead while it holds the
    request."""
    deaths: int
    """Number of workers that died while they held this request, at most MAX_DEATHS. A worker that was only late does
    not count."""
    url: str
    payload: bytes | None
    terms: Terms
    request_id: str
    """Fixed when the request was added, the same on every attempt."""
    identity: bytes
    """Bytes that identify the request within its run, if the entry stores some; empty: spider and URL identify it. Only
    the frontier reads them."""
    charged: float
    """Earliest time at which its hit can have been charged, on this process's monotonic clock."""
    ahead_seconds: float = 0.0
    """Seconds after `charged` at which the request is to start."""
    spacing_seconds: float = 0.0
    """Even gap in seconds between two requests that share its budget. 0: they may start together."""
    egress: str = ""
    """Egress (name of the address that requests leave from) under which its hit was charged."""
    blacklisted: bool = False
    """True: its domain is blacklisted. The worker records and settles it as dropped, unfetched. No hit was charged."""
    is_last: bool = False
    """True: when it was leased, nothing else of its domain was left for the worker. Set only while shards are busy."""
    render: bool = False
    """True: it is to be rendered in a browser (lane `browser`)."""

    @property
    def start(self) -> float:
        """Time at which the request is to start, on this process's monotonic clock."""
        return self.charged + self.ahead_seconds


class Settlement(msgspec.Struct):
    """Report of a lease's outcome to the frontier."""

    lease: Lease
    outcome: Outcome
    reason: str = ""
    """For `failed`, `dropped`, `retry` and `postponed`: a short word, counted per crawl. Clients read it, so the word
    of a cause is fixed."""
    delay_seconds: float = 0.0
    """For `retry` and `postponed`: least number of seconds before the next lease."""
    payload: bytes | None = None
    """For `forwarded`, `switched`, `retry` and `failed`: new payload of the entry. None keeps the old one."""
    unanswered: bool = False
    """For `failed` and `dropped`: no answer came, so another attempt may help. If its crawl wants that, the request is
    kept, and retried when the crawl is started again."""
    drops: dict[str, int] | None = None
    """Number of dropped links of this page, by reason. They are counted with the settlement, so exactly once."""
    unused: bool = False
    """For `failed`, `dropped` and `switched`. True: nothing was sent, so the request's hit is free again."""


def request_id_prefix(run: Run) -> bytes:
    """Return the part of the input of `request_id` that is the same for all requests of a run."""
    return f"{run.crawl.id.token}:{run.generation}:{run.number}:".encode()


def request_id(prefix: bytes, identity: bytes) -> str:
    """Return the id of a request: 32 hex digits, the same on every attempt.

    `prefix`: `request_id_prefix` of its run. `identity`: bytes that identify the request within its run: those of
    `Lease.identity`, or spider and URL where it is empty. The id is computed from what the entry holds, so the frontier
    does not store it. The computation must not change: a consumer recognises a repeated record by this id, also after
    an upgrade.
    """
    return hashlib.blake2b(prefix + identity, digest_size=16).hexdigest()


MAX_PAYLOAD_BYTES = 1 << 20
"""Largest packed payload of an entry. May be larger, but waiting requests need that much memory in the frontier.
Smaller: requests that wait already could not be put back with a new payload."""
_REDIRECT_BYTES = 16 << 10
"""Part of MAX_PAYLOAD_BYTES that is left for what redirects add (URLs, cookies). Less makes long chains fail."""
_MAX_NEW_PAYLOAD_BYTES = MAX_PAYLOAD_BYTES - _REDIRECT_BYTES
"""Largest packed payload of a new request."""


class Payload(msgspec.Struct, omit_defaults=True, frozen=True, kw_only=True):
    """Properties of a request beyond its URL and its terms (the options of its submission). Each is optional."""

    method: str = "GET"
    body: bytes = b""
    """Sent only with a method other than GET."""
    headers: dict[str, str] | None = None
    chain: tuple[tuple[str, int], ...] = ()
    """Redirects so far: (URL that redirected, its status), oldest first. The entry's URL is the first of them."""
    location: str | None = None
    """URL that the redirects have led to. None: fetch the entry's own URL."""
    cookies: dict[str, str] | None = None
    """Cookies that the redirects have set. They are sent only within this chain."""
    request_id: str | None = None
    """For a request that was redirected to another domain: the id that it had before."""
    attrs: dict[str, object] | None = None
    """Overrides the attrs of the terms, for example for a spider that counts its steps."""
    sitemap: bool = False
    """True: read the response as a sitemap."""
    listed: bool = False
    """True: a sitemap has listed this URL, and may have been listed by another one. As a sitemap, it may not list
    sitemaps; as a page, it is not read as a sitemap."""
    renewals: int = 0
    """Number of times that the page was repeated because its session had ended."""
    render: str = ""
    """Reason why a worker without a free browser left the page to others: `match`, or `auto`, behind which a colon and
    the decision may stand: `auto:change`. Empty: its request says so, or it is not to be rendered."""
    browser_ends: int = 0
    """Number of times that the browser which built the page has crashed or hung."""
    repeated: int = 0
    """Fingerprint of the page by which the request was refused before, because many other paths had got it, too
    (`policy/repeated_pages.py`). 0: it was not."""
    scrapy: bytes | None = None
    """Other properties of a Scrapy request, as `model.values` encodes them. Only workers that run Scrapy read them."""
    asset: Asset | None = None
    """The request fetches an asset, a file that a page embeds or links, under the name ASSET_SPIDER. None: a page."""


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
"""Values of a Scrapy request's fields (`Request.to_dict`) that `Payload.scrapy` leaves out. A scheduler and the import
of a scrapy-redis queue must leave out the same, and stored requests rely on these values, so they must not change."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Payload)
EMPTY_PAYLOAD = Payload()


def pack(payload: Payload) -> bytes | None:
    """Return the payload as MessagePack; None for a payload with only default values."""
    return None if payload == EMPTY_PAYLOAD else _encoder.encode(payload)


def payload_size_error(data: bytes | None) -> str:
    """Return the reason why a packed payload is too large to be stored; empty if it is not."""
    size = len(data or b"")
    return (
        f"it takes {size:,} bytes; at most {_MAX_NEW_PAYLOAD_BYTES:,} are stored"
        if size > _MAX_NEW_PAYLOAD_BYTES
        else ""
    )


def unpack(data: bytes | None) -> Payload:
    """Return the payload that `pack` made. Raises msgspec.ValidationError for other bytes."""
    return EMPTY_PAYLOAD if data is None else _decoder.decode(data)


SPIDER_FILE = re.compile(r"(?P<path>.*\.py)(?::(?P<spider>[^:]*))?", re.DOTALL)
"""Reference to a spider of a Python file: `shop.py`, or `shop.py:ListSpider`. Fixed."""
_FORBIDDEN = frozenset("|,\n")
"""Separators of names in the frontier's keys and fields, and of lines in its lists. None may be allowed: two names
could then lead to the same key."""


def spider_name_error(name: str) -> str:
    """Return the reason why a spider may not have this name; empty if it may."""
    return f"the name {ASSET_SPIDER} is taken by Gossamer itself" if name == ASSET_SPIDER else name_error(name)


def name_error(name: str) -> str:
    """Return the reason why a pool (group of workers), spider or egress (address that requests leave from) may not have
    this name; empty if it may."""
    if _FORBIDDEN.isdisjoint(name):
        return ""
    return f"a pool, spider or egress may not contain '|', ',' or a line break: {name[:200]!r}"
