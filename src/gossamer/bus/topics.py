"""The names of the topics, Scrapy Cluster's and ours, in one place."""

import hashlib
import re
from dataclasses import dataclass

from gossamer.errors import BadInput

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
