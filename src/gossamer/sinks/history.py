"""The topic of the historian, the service that remembers crawls: ends of runs, and examples of failed requests.

Programs publish there where a historian is known to run: one that has not run for a month would be sent messages that
nothing reads.
"""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from gossamer.bus.base import Bus, Topics
from gossamer.errors import BusError
from gossamer.model.crawl import CrawlEvent
from gossamer.model.json_codec import encode_value
from gossamer.model.messages.history import RequestFailed, ended_message
from gossamer.model.record import Output, PageRecord

_LOOK_SECONDS = 30.0
"""Time between two looks for the topic, which a historian makes."""
_EXAMPLES, _EXAMPLE_SECONDS = 10, 60.0
"""Examples of one reason and crawl that a process publishes within so many seconds."""
_MAX_COUNTED = 10_000
"""Pairs of crawl and reason that are counted. Then the counts begin anew, and a few more examples are published."""
_MAX_ERROR = 300
"""Characters of an error in an example."""


class HistoryTopic:
    """Publishes to the historian."""

    def __init__(
        self, bus: Bus, topics: Topics, *, is_used: bool, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """`is_used`: True if the settings name a history. Otherwise one may be used by other processes, which is seen
        by its topic."""
        self._bus = bus
        self._topic = topics.history
        self._is_used = is_used
        self._monotonic = monotonic
        self._looked_at = float("-inf")
        self._counts: dict[tuple[str, str, str], int] = {}
        self._counted_since = float("-inf")

    async def publish_ends(self, events: Sequence[CrawlEvent]) -> None:
        """Publish ends of runs, which are durable when this returns. Raises errors of the bus."""
        if events and await self._is_wanted():
            await self._bus.publish(self._topic, [ended_message(event) for event in events])

    def examples(self, outputs: Sequence[Output]) -> list[bytes]:
        """Return messages on some of the failed requests among these outputs."""
        return [encode_value(_failed(output.record)) for output in outputs if self._is_example(output.record)]

    async def publish_examples(self, messages: Sequence[bytes]) -> None:
        """Publish these messages. They are lost where the bus fails: no page waits for them."""
        try:
            if await self._is_wanted():
                await self._bus.publish(self._topic, messages)
        except BusError:
            return

    def _is_example(self, record: object) -> bool:
        """Return whether to publish a record, and count it."""
        if not isinstance(record, PageRecord) or record.success:
            return False
        now = self._monotonic()
        if now - self._counted_since > _EXAMPLE_SECONDS or len(self._counts) > _MAX_COUNTED:
            self._counts, self._counted_since = {}, now
        key = (record.appid, record.crawlid, record.reason)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return count <= _EXAMPLES

    async def _is_wanted(self) -> bool:
        """Return whether there is a historian."""
        now = self._monotonic()
        if not self._is_used and now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            self._is_used = bool(await self._bus.existing([self._topic]))
        return self._is_used


def _failed(record: Any) -> RequestFailed:
    moment = datetime.fromisoformat(record.timestamp)
    return RequestFailed(
        appid=record.appid,
        crawlid=record.crawlid,
        spider=record.spiderid,
        request_id=record.request_id,
        url=record.url,
        status=record.status_code,
        reason=record.reason,
        error=record.exception[:_MAX_ERROR],
        at=(moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(),
    )
