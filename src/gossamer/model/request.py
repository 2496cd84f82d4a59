"""Requests on their way through the frontier."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from gossamer.model.crawl import Run, Terms
from gossamer.model.outcome import Outcome

DEATHS = 3
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
    """Number of workers that died while they held it, at most `DEATHS`. A worker that was only late does not count."""
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
