"""Ends of runs, which a shard keeps until they have been published."""

import asyncio
from collections.abc import Sequence

from gossamer.frontier.valkey import codec
from gossamer.frontier.valkey.commands import ScriptCommands
from gossamer.frontier.valkey.keys import home_shard
from gossamer.frontier.valkey.runs import LETTERS
from gossamer.model.crawl import CrawlEvent

_STATES = {letter.encode(): state for state, letter in LETTERS.items()}
_PUBLISHER_MS = 5000
"""Time after its last call for which a publisher is the only one that gets a shard's events. Longer: events wait longer
when the publisher dies. Must exceed the time that the publisher takes from one call to the next, or events are
published twice. `pending_events` names the 5 s, too."""
_EVENTS_AT_ONCE = 500
"""Events that one call deletes, at most 1,000, a limit of the script. More make each call longer, and a shard executes
no other call meanwhile."""


class EventList:
    """The part of ValkeyFrontier for ends of runs."""

    _commands: ScriptCommands

    async def pending_events(
        self, *, limit: int = 100, shard: int | None = None, publisher: str = ""
    ) -> list[CrawlEvent]:
        """Return the ends of runs of a service that are not acknowledged yet, oldest first (`shard`: only of
        crawls with this home shard). Repeated calls return the same until `acknowledge_events`, or the retention ends.

        There is one event per run, and one for each spider's part that was stopped or expired by itself. There is none
        for a run whose parts all ended by themselves, for a run to which nothing was ever added, and for a stop after
        the end. For a part that expired, `purged` counts all its requests that were dropped for that.

        `publisher`: name of a caller that publishes the events; for 5 s after a call that returned some, every other
        publisher gets no events of that shard."""
        shards = range(self._commands.count) if shard is None else (shard,)
        pages = await asyncio.gather(
            *(self._commands.call(one, "list_events", limit, publisher, _PUBLISHER_MS) for one in shards)
        )
        events = [
            _decode_event(event_id.decode(), float(time_ms) / 1000, raw)
            for page in pages
            for event_id, time_ms, raw in zip(page[::3], page[1::3], page[2::3], strict=True)
        ]
        return sorted(events, key=lambda event: (event.at, event.crawl, event.run, event.event_id))[:limit]

    async def acknowledge_events(self, events: Sequence[CrawlEvent]) -> None:
        """Delete events that have been published. May be repeated."""
        by_shard: dict[int, list[str]] = {}
        for event in events:
            by_shard.setdefault(home_shard(event.crawl.token, self._commands.count), []).append(event.event_id)
        await asyncio.gather(
            *(
                self._commands.call(shard, "acknowledge_events", *ids[first : first + _EVENTS_AT_ONCE])
                for shard, ids in by_shard.items()
                for first in range(0, len(ids), _EVENTS_AT_ONCE)
            )
        )


def _decode_event(event_id: str, at: float, raw: bytes) -> CrawlEvent:
    """Decode an event from consecutive msgpack values, in the stored order: kind, run, spider, purged, crawl."""
    kind, run, spider, purged, crawl = codec.unpack_parts(raw, 5)
    with codec.decoding("an event"):
        return CrawlEvent(
            event_id=event_id,
            kind=_STATES[kind],
            crawl=codec.unpack_crawl(crawl).id,
            run=codec.unpack_number(run),
            spider=spider.decode(),
            at=at,
            purged=codec.unpack_number(purged),
        )
