"""The interface of a message bus, and the names of a cluster's topics.

Delivery is at least once, in order within a key. Every call may raise BusUnavailable (repeat the call; it may have been
carried out), BusFull, MessageTooLarge, and BadInput for an invalid topic name.

Two buses implement this (`streams.py`, `kafka.py`), and one set of tests runs against both: a promise may become
stronger if both keep it, never weaker. Names of topics must not change at all.
"""

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gossamer.errors import BadInput


@dataclass(frozen=True, slots=True)
class Message:
    """One message that was taken from a topic."""

    topic: str
    value: bytes
    key: bytes
    """Messages with the same key go to the same partition, if the bus has partitions. Empty: no key was given."""
    published: float
    """Epoch seconds by the bus's clock."""
    position: Any
    """Position in the topic; only the bus that made it can interpret it."""
    redelivered: bool = False
    """True: a member of the group has taken it before, and has left or died, so the message may have been processed."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """Name and current size of a topic."""

    name: str
    messages: int
    """Messages that the topic holds now, read or not."""


class Consumer(Protocol):
    """A member of a consumer group; `Reader` is one without a group. Only one task may use it."""

    async def take(self, *, at_most: int, wait_seconds: float) -> list[Message]:
        """Return up to `at_most` messages. Wait up to `wait_seconds` for the first one; empty if none came.

        A message that was taken but not acknowledged is delivered again, to another member, when this member leaves or
        dies. One member gets messages in the order in which they were published; on Kafka this holds for messages of
        the same key."""

    async def acknowledge(self, messages: Sequence[Message]) -> None:
        """Mark messages as processed, so that the group does not get them again.

        Messages may be acknowledged in any order, and repeatedly. Kafka remembers only up to where a partition was
        processed: a message counts as processed there when all older ones of its partition do."""

    async def lag(self) -> int:
        """Return the number of messages in the consumer's topics that the group has not acknowledged."""

    async def close(self) -> None:
        """Leave the group. Messages that were not acknowledged go to the other members at once."""


class Reader(Consumer, Protocol):
    """A consumer without a group. Its cursor moves past the messages that it acknowledges."""

    def is_at_end(self) -> bool:
        """Return whether all topics were exhausted when the last `take` returned."""
        ...

    def cursor(self) -> str:
        """Return the position after the messages that were acknowledged. `Bus.read` continues there if it gets it as
        `after`, in any process."""
        ...


class Bus(Protocol):
    """Publishes to and consumes from topics. A topic that does not exist is created on first use, and again when it was
    deleted while it is used. A topic that fails does not hold up calls for other topics."""

    async def message_limit(self, topic: str) -> int:
        """Return the size of the largest message that this topic takes. Creates the topic if it does not exist.

        Ask again after MessageTooLarge: a topic's limit may be lowered at any time."""

    async def publish(self, topic: str, values: Sequence[bytes], *, keys: Sequence[bytes] | None = None) -> None:
        """Append messages to a topic. They are durable when this returns; after an error some of them may be there.

        Concurrent calls are allowed; their messages are sent in common batches."""

    async def consume(self, topics: Sequence[str], *, group: str) -> Consumer:
        """Join a consumer group: each message goes to one of its members. A new group begins with the oldest
        message."""

    async def read(self, topics: Sequence[str], *, from_beginning: bool, after: str = "", since: float = 0.0) -> Reader:
        """Read without a group: from the oldest message, or from now on.

        `since`: epoch seconds by the bus's clock. With `from_beginning`, older messages are skipped at no cost.
        `after`: a cursor of a reader of the same topics, which replaces `from_beginning`. Reading continues there, or
        at the oldest message if the bus has deleted that part of the topic. Raises BadInput for an invalid cursor."""

    async def read_back(self, topic: str, *, before: str = "") -> Reader:
        """Read a topic from its newest message to its oldest. `take` does not wait: it returns fewer messages than
        asked for where there are no older ones. On several partitions, the order is that of the times of messages.

        `before`: a cursor of such a reader. Reading continues there, so a message that was published since then is not
        returned. Raises BadInput for an invalid cursor."""

    async def topics(self, *, after: str = "", limit: int | None = None) -> list[TopicInfo]:
        """Return the topics under this bus's prefix, sorted by name: up to `limit` of those whose names come after
        `after`. The cost is that of the topics that are returned, but for the list of names."""

    async def existing(self, topics: Collection[str]) -> set[str]:
        """Return those of these topics that exist, without creating any."""

    async def ping(self) -> None:
        """Return when the bus answers. Raises BusUnavailable if it does not answer within a few seconds."""

    async def check_room(self) -> None:
        """Raise BusFull if the bus has no room for any topic: then the failure of one has no cause of its own."""

    async def close(self) -> None:
        """Send pending messages, then close. Close all consumers before."""


# None of these may change: the names of the topics of existing applications depend on them.
_INVALID_CHARACTER = re.compile(r"[^A-Za-z0-9._-]")
"""Kafka's rule for topic names. It holds on every bus, so that a cluster can move to Kafka."""
_LONGEST_APPID = 100
"""Characters of an appid that a topic name contains. Together with prefix and digest they stay below _LONGEST_NAME."""
_DIGEST_BYTES = 6
"""Length of the digest that replaces what a topic name cannot contain of an appid."""
_LONGEST_NAME = 249
"""Kafka's limit for the length of topic names."""


@dataclass(frozen=True, slots=True)
class Topics:
    """Names of the topics of one cluster. They are Scrapy Cluster's and must not change: its producers and consumers
    work with them unchanged."""

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
        """Actions of programs that follow Scrapy Cluster 1.0. Answers to them have the format of that version."""
        return f"{self.prefix}.inbound_actions"

    @property
    def requests(self) -> tuple[str, str, str]:
        """All topics from which requests are read."""
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
        """Rejected requests, each with the reason and the original message."""
        return f"{self.prefix}.dead_letter"

    @property
    def history(self) -> str:
        """Messages to the historian: ends of runs, and examples of failed requests. Not a topic of Scrapy Cluster."""
        return f"{self.prefix}.history"

    @property
    def changes(self) -> str:
        """Changes of the pages of crawls that are kept up to date. Not a topic of Scrapy Cluster."""
        return f"{self.prefix}.changes"

    def crawled_by(self, appid: str) -> str:
        """One application's pages and items."""
        return f"{self.prefix}.crawled_{_topic_part(appid)}"

    def outbound_to(self, appid: str) -> str:
        """One application's answers and events."""
        return f"{self.prefix}.outbound_{_topic_part(appid)}"


def _topic_part(appid: str) -> str:
    """Return the appid if it is valid in a topic name; else its valid characters and a digest, so that no two
    applications share a topic. `firehose` is treated as invalid, because the common topics have that name."""
    if len(appid) <= _LONGEST_APPID and appid != "firehose" and not _INVALID_CHARACTER.search(appid):
        return appid
    digest = hashlib.blake2b(appid.encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{_INVALID_CHARACTER.sub('_', appid)[:_LONGEST_APPID]}-{digest}"


def check_topic_name(name: str) -> None:
    """Raise BadInput for a name that Kafka does not accept. Every bus refuses those names."""
    if not name or name in (".", "..") or len(name) > _LONGEST_NAME or _INVALID_CHARACTER.search(name):
        raise BadInput(
            f"{name[:_LONGEST_NAME]!r} is not a topic name; use 1 to {_LONGEST_NAME} characters of A-Z a-z 0-9 . _ -"
        )
