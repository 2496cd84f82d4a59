"""How a crawl comes in and its pages go out: by files, or through a service and its bus."""

import asyncio
import random
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from gossamer.bus.streams import StreamsBus
from gossamer.bus.topics import Topics
from gossamer.errors import BadInput
from gossamer.fakeweb import FakeWeb
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Terms
from gossamer.model.record import PageRecord
from gossamer.sinks.read import read_records
from gossamer.valkey.shards import Shards
from tests.chaos.checker import Kept
from tests.chaos.crew import Crew
from tests.servers import crawls
from tests.servers.valkey import wait_until

_SERVICES = 2
_TOLD_SECONDS = 30.0
_DEEP = 1_000_000


class Lane(Protocol):
    """One of them, for one run."""

    async def begin(self) -> None:
        """Open the crawl and start what is needed beside the workers."""

    async def more(self) -> None:
        """In mid-crawl: what comes in again and changes nothing."""

    async def kept(self) -> tuple[list[Kept], list[str]]:
        """The records, and what of them cannot be read."""

    async def ends(self) -> list[str]:
        """How the crawl's end was told, each event once."""

    async def close(self) -> None:
        """Let go of everything."""


class FileLane:
    """The crawl is opened from here; workers append to files."""

    def __init__(self, frontier: ValkeyFrontier, web: FakeWeb, crew: Crew) -> None:
        self._frontier = frontier
        self._web = web
        self._crew = crew

    async def begin(self) -> None:
        await crawls.open_crawl(self._frontier, self._web.seeds(), Terms())

    async def more(self) -> None:
        return

    async def kept(self) -> tuple[list[Kept], list[str]]:
        return await asyncio.to_thread(_read, self._crew.outputs())

    async def ends(self) -> list[str]:
        return [event.kind.value for event in await crawls.ends(self._frontier)]

    async def close(self) -> None:
        return


class ServiceLane:
    """Two services take requests from the bus and by REST; workers publish pages; the end is told on the bus."""

    def __init__(self, frontier: ValkeyFrontier, web: FakeWeb, crew: Crew, *, address: str, seed: int) -> None:
        self._frontier = frontier
        self._web = web
        self._crew = crew
        self._address = address
        self._chance = random.Random(f"requests {seed}")
        self._topics = Topics()
        self._shards: Shards | None = None
        self._bus: StreamsBus | None = None

    async def begin(self) -> None:
        self._shards = await Shards.connect(self._address)
        self._bus = StreamsBus(self._shards, kept=self._topics.requests)
        services = [self._crew.add_service() for _ in range(_SERVICES)]
        await asyncio.to_thread(wait_until, lambda: all("REST " in s.member.log for s in services), "the services")
        seeds = self._web.seeds()
        await self._publish(seeds[::2])
        api = services[0].member.log.partition("REST ")[2].split()[0]
        for seed in seeds[1::2]:
            await asyncio.to_thread(_post, f"{api}/feed", _request(seed))
        async with asyncio.timeout(_TOLD_SECONDS):
            while await self._frontier.crawl_info(crawls.CRAWL) is None:  # noqa: ASYNC110 - another process opens it
                await asyncio.sleep(0.05)

    async def more(self) -> None:
        await self._publish(self._chance.sample(self._web.seeds(), 3))

    async def kept(self) -> tuple[list[Kept], list[str]]:
        pages = await self._all(self._topics.crawled)
        refused = await self._all(self._topics.dead_letter)
        kept = [Kept(p["url"], p["success"], p["reason"], p["request_id"]) for p in pages if p.get("type") == "page"]
        return kept, [f"refused: {letter}" for letter in refused[:3]]

    async def ends(self) -> list[str]:
        last = time.monotonic() + _TOLD_SECONDS
        while True:
            told: dict[str, str] = {}
            for message in await self._all(self._topics.outbound):
                if "event_id" in message and message["crawlid"] == crawls.CRAWL.crawlid:
                    told[message["event_id"]] = message["action"]
            if told or time.monotonic() > last:
                return list(told.values())
            await asyncio.sleep(0.2)

    async def close(self) -> None:
        if self._bus is not None:
            await self._bus.close()
        if self._shards is not None:
            await self._shards.close()

    async def _publish(self, seeds: Sequence[str]) -> None:
        assert self._bus is not None
        await self._bus.publish(self._topics.incoming, [msgspec.json.encode(_request(seed)) for seed in seeds])

    async def _all(self, topic: str) -> list[dict[str, Any]]:
        assert self._bus is not None
        reader = await self._bus.read([topic], from_beginning=True)
        found: list[dict[str, Any]] = []
        try:
            while batch := await reader.take(at_most=1000, wait_seconds=0.5):
                found += [msgspec.json.decode(message.value) for message in batch]
        finally:
            await reader.close()
        return found


def _request(url: str) -> dict[str, Any]:
    return {"url": url, "appid": crawls.CRAWL.appid, "crawlid": crawls.CRAWL.crawlid, "maxdepth": _DEEP}


def _post(url: str, message: dict[str, Any]) -> None:
    request = urllib.request.Request(
        url, data=msgspec.json.encode(message), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_TOLD_SECONDS) as answer:
        answer.read()


def _read(files: Sequence[Path]) -> tuple[list[Kept], list[str]]:
    kept: list[Kept] = []
    unreadable: list[str] = []
    for file in files:
        try:
            kept.extend(
                Kept(record.url, record.success, record.reason, record.request_id)
                for record in read_records(file)
                if isinstance(record, PageRecord)
            )
        except BadInput as error:
            unreadable.append(str(error))
    return kept, unreadable
