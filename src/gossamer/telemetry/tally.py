"""What one process has done since it started: plain counters, cheap to keep and to send to a parent process."""

from typing import TypeVar

import msgspec

T = TypeVar("T")


class OriginWait(msgspec.Struct, frozen=True):
    """What requests of an origin wait for."""

    reason: str
    """Why its robots.txt cannot be had."""
    until: float
    """Epoch seconds when it is asked again."""


class Tally(msgspec.Struct):
    """Counts since the process started. `failed` and `dropped` by reason; `bytes` as received on the wire."""

    pages: int = 0
    """Settled or about to be settled as fetched."""
    failed: dict[str, int] = msgspec.field(default_factory=dict)
    dropped: dict[str, int] = msgspec.field(default_factory=dict)
    retried: dict[str, int] = msgspec.field(default_factory=dict)
    """Put back for another attempt, by what went wrong."""
    items: int = 0
    bytes: int = 0
    in_flight: int = 0
    """Requests being fetched now."""
    committing: int = 0
    """Finished pages that wait to be written and settled."""
    waits: dict[str, OriginWait] = msgspec.field(default_factory=dict)
    """Origins whose requests wait for their robots.txt now, the first 20."""
    reclaimed: int = 0
    """Requests that this process took back from dead workers."""
    trimmed: dict[str, int] = msgspec.field(default_factory=dict)
    """Messages by topic that left a stream unread because this process published more."""
    troubles: list[str] = msgspec.field(default_factory=list)
    """Names of what is wrong now."""
    given_up: int = 0
    """Pages that were fetched, and neither written nor settled before the end; they will be fetched again."""
    missing: int = 0
    """Records that were durable in an output and vanished from it: the file was deleted or cut."""
    statuses: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    """Answers by spider and status code; 504 is what never came, as in Scrapy Cluster."""

    def fail(self, reason: str) -> None:
        self.failed[reason] = self.failed.get(reason, 0) + 1

    def drop(self, reason: str) -> None:
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def retry(self, reason: str) -> None:
        self.retried[reason] = self.retried.get(reason, 0) + 1

    @property
    def retries(self) -> int:
        """However they came about."""
        return sum(self.retried.values())

    def status(self, spider: str, code: int) -> None:
        """An answer with this status code; 0: none came."""
        codes = self.statuses.setdefault(spider, {})
        code = code or 504
        codes[code] = codes.get(code, 0) + 1

    def ended(self) -> "Tally":
        """What is left when the process has ended: its counts, and nothing that goes on."""
        return msgspec.structs.replace(self, in_flight=0, committing=0, waits={}, troubles=[])

    def plus(self, other: "Tally") -> "Tally":
        """The sum of two processes, as a new object."""
        return Tally(
            pages=self.pages + other.pages,
            failed=_added(self.failed, other.failed),
            dropped=_added(self.dropped, other.dropped),
            retried=_added(self.retried, other.retried),
            items=self.items + other.items,
            bytes=self.bytes + other.bytes,
            in_flight=self.in_flight + other.in_flight,
            committing=self.committing + other.committing,
            waits=self.waits | other.waits,
            reclaimed=self.reclaimed + other.reclaimed,
            trimmed=_added(self.trimmed, other.trimmed),
            troubles=sorted({*self.troubles, *other.troubles}),
            given_up=self.given_up + other.given_up,
            missing=self.missing + other.missing,
            statuses={
                spider: _added(self.statuses.get(spider, {}), other.statuses.get(spider, {}))
                for spider in self.statuses | other.statuses
            },
        )


def _added(mine: dict[T, int], theirs: dict[T, int]) -> dict[T, int]:
    return {reason: mine.get(reason, 0) + theirs.get(reason, 0) for reason in mine | theirs}
