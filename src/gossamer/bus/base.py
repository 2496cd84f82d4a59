"""The bus's contract: named topics, consumer groups, batches, acknowledgements. At least once, in order within a key.

Errors of every call: BusUnavailable (repeat it: what was done may be done again), BusFull, MessageTooLarge; BadInput
for what is no topic's name.
"""

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gossamer.errors import BadInput


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it was taken from a topic."""

    topic: str
    value: bytes
    key: bytes
    """Messages with the same key go to the same partition, where the bus has any. Empty: none was given."""
    published: float
    """Epoch seconds by the bus's clock."""
    place: Any
    """Where it stands in its topic; the bus's own business."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What a topic holds now."""

    name: str
    messages: int
    """Kept now, read or not."""


class Consumer(Protocol):
    """A member of a group that reads topics, or a reader on its own. Not to be shared between tasks."""

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        """The next messages, at most so many; waits for the first one so long. Empty: none came.

        A message that was taken and not acknowledged is given again: to another member when this one leaves or dies.
        To one member they come in the order in which they were published, on Kafka those of one key do."""

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """These are done with: the group does not get them again. May be repeated, in any order; but on Kafka one that
        is acknowledged before an older one of its partition may come again until that is, too."""

    async def lag(self) -> int:
        """Messages in its topics that the group has not acknowledged."""

    async def close(self) -> None:
        """Leave the group; what is not acknowledged goes to the others at once."""


class Reader(Consumer, Protocol):
    """A consumer on its own, in no group. What it acknowledged is where it stands."""

    def is_at_end(self) -> bool:
        """Whether there was nothing more in any of its topics when it last took something."""
        ...

    def mark(self) -> str:
        """Behind everything it acknowledged: `read(after=)` goes on there, also in another process."""
        ...


class Bus(Protocol):
    """Publishes and consumes topics; a topic that is missing is created."""

    @property
    def largest(self) -> int:
        """Bytes of the largest message it takes, as far as is known: it may be lowered by the first use of a topic."""
        ...

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        """Put them at the end of the topic. They are durable when this returns; after an error some may be there.

        Any number of calls may be under way at once; they travel in common batches."""

    async def consume(self, topics: Sequence[str], *, group: str) -> Consumer:
        """Join a group: each message goes to one of its members. A group that is new begins with the oldest message."""

    async def read(self, topics: Sequence[str], *, from_beginning: bool, after: str = "") -> Reader:
        """Read without a group, from the oldest message or from now on; or from where a reader of the same topics
        stood (`mark`), or the oldest message since, where that is gone. Raises BadInput for what is no mark."""

    async def topics(self) -> list[TopicInfo]:
        """All topics under this bus's prefix, by name."""

    async def existing(self, topics: Collection[str]) -> set[str]:
        """Return those of these topics that are there: somebody has published to them or reads them. Creates none."""

    async def ping(self) -> None:
        """Return when the bus answers; BusUnavailable when it does not within a few seconds."""

    async def close(self) -> None:
        """Send what is under way, then close. Consumers are closed before."""


_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
"""What Kafka does not allow in a topic's name."""
_LONGEST = 100
"""Characters of an application's part of a name."""
_LONGEST_NAME = 249
"""Kafka's limit."""


@dataclass(frozen=True, slots=True)
class Topics:
    """All topics of one cluster."""

    prefix: str = "demo"

    @property
    def incoming(self) -> str:
        """Requests of every kind."""
        return f"{self.prefix}.incoming"

    @property
    def incoming_urls(self) -> str:
        """Crawl requests of programs that follow Scrapy Cluster 1.0."""
        return f"{self.prefix}.incoming_urls"

    @property
    def inbound_actions(self) -> str:
        """Actions of programs that follow Scrapy Cluster 1.0; they are answered in its form."""
        return f"{self.prefix}.inbound_actions"

    @property
    def requests(self) -> tuple[str, str, str]:
        """Where requests come in."""
        return self.incoming, self.incoming_urls, self.inbound_actions

    @property
    def crawled(self) -> str:
        """Every page and item."""
        return f"{self.prefix}.crawled_firehose"

    @property
    def outbound(self) -> str:
        """Every answer and event."""
        return f"{self.prefix}.outbound_firehose"

    @property
    def dead_letter(self) -> str:
        """Requests that were refused, each with the reason and the message as it came."""
        return f"{self.prefix}.dead_letter"

    def crawled_by(self, appid: str) -> str:
        """One application's pages and items."""
        return f"{self.prefix}.crawled_{topic_part(appid)}"

    def outbound_to(self, appid: str) -> str:
        """One application's answers and events."""
        return f"{self.prefix}.outbound_{topic_part(appid)}"


def topic_part(appid: str) -> str:
    """The application's name where a topic's name allows it; else what is left of it and a digest, so that no two
    applications share a topic. `firehose` is nobody's name."""
    if len(appid) <= _LONGEST and appid != "firehose" and not _ILLEGAL.search(appid):
        return appid
    digest = hashlib.blake2b(appid.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{_ILLEGAL.sub('_', appid)[:_LONGEST]}-{digest}"


def check_topic(name: str) -> None:
    """Raises BadInput for what Kafka would not take as a topic's name: no bus does."""
    if not name or name in (".", "..") or len(name) > _LONGEST_NAME or _ILLEGAL.search(name):
        raise BadInput(f"{name[:_LONGEST_NAME]!r} is no topic; use up to {_LONGEST_NAME} of A-Z a-z 0-9 . _ -")
