"""How a crawl comes in and its pages go out: by files, through a service and its bus, or by Scrapy processes."""

import asyncio
import random
import sys
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec

from gossamer.bus.base import Topics
from gossamer.bus.streams import StreamsBus
from gossamer.errors import BadInput
from gossamer.fakeweb import FakeWeb
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import Terms
from gossamer.model.record import PageRecord
from gossamer.sinks.jsonl import read_records
from gossamer.valkey.shards import Shards
from tests.chaos.checker import Kept
from tests.chaos.crew import ON_THE_BUS, Crew
from tests.chaos.schedule import Plan
from tests.chaos.stores import Store
from tests.servers import crawls
from tests.servers.fleet import Fleet, Member
from tests.servers.valkey import wait_until

_SERVICES = 2
_SPIDERS = Path(__file__).with_name("spiders.py")
_SCRAPY = {
    "SCHEDULER": "gossamer.scrapy.Scheduler",
    "SCHEDULER_PERSIST": "True",
    "GOSSAMER_POOL": "shared",
    "TELNETCONSOLE_ENABLED": "False",
    "REMOTE_CONTROL_ENABLED": "False",
    "LOG_LEVEL": "INFO",
    "CONCURRENT_REQUESTS_PER_DOMAIN": "16",
    "DOWNLOAD_TIMEOUT": "20",
    "ROBOTSTXT_OBEY": "True",
}
_TOLD_SECONDS = 30.0
_DEEP = 1_000_000


@dataclass(slots=True)
class Stage:
    """What a lane plays on."""

    web: FakeWeb
    store: Store
    fleet: Fleet
    frontier: ValkeyFrontier
    crew: Crew = field(init=False)


class Lane(Protocol):
    """One of them, for one run."""

    workers_end: bool
    """By themselves, when the crawl is over."""

    def start(self, place: str, name: str, address: str) -> Member:
        """A worker."""
        ...

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
    """The crawl is opened from here; workers append to files: all to one, or each place to its own."""

    workers_end = False
    _render = False
    """True: pages are rendered."""

    def __init__(self, stage: Stage, plan: Plan) -> None:
        self._stage = stage
        self._plan = plan
        self._outputs: set[Path] = set()

    def start(self, place: str, name: str, address: str) -> Member:
        stem = "pages" if self._plan.one_file else place
        output = self._stage.fleet.folder / f"{stem}{self._plan.form}"
        self._outputs.add(output)
        return self._stage.fleet.start(frontier=address, output=output, name=name, flags=self._flags(place))

    def _flags(self, place: str) -> list[str]:
        return ["--data-dir", place, "--processes", str(self._plan.processes)]

    async def begin(self) -> None:
        await crawls.open_crawl(
            self._stage.frontier, self._stage.web.seeds(), Terms(render=self._render), render=self._render
        )

    async def more(self) -> None:
        return

    async def kept(self) -> tuple[list[Kept], list[str]]:
        return await asyncio.to_thread(_read, sorted(filter(Path.exists, self._outputs)))

    async def ends(self) -> list[str]:
        return [event.kind.value for event in await crawls.ends(self._stage.frontier)]

    async def close(self) -> None:
        return


class BrowserLane(FileLane):
    """The same, and each worker builds its pages in a browser."""

    _render = True

    def _flags(self, place: str) -> list[str]:
        return [*super()._flags(place), "--render-only"]


class ScrapyLane:
    """Scrapy processes on the shared frontier, each with a feed of its own. They open the crawl, and end with it."""

    workers_end = True

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._feeds: list[Path] = []

    def start(self, place: str, name: str, address: str) -> Member:
        feed = self._stage.fleet.folder / f"{name}.jsonl"
        self._feeds.append(feed)
        settings = {
            **_SCRAPY,
            "GOSSAMER_FRONTIER": address,
            "GOSSAMER_APPID": crawls.CRAWL.appid,
            "GOSSAMER_CRAWL_ID": crawls.CRAWL.crawlid,
            "USER_AGENT": name,
        }
        web = self._stage.web
        arguments = {"seeds": ",".join(web.seeds()), "hosts": ",".join(web.site.hosts())}
        command = [sys.executable, "-m", "tests.servers.run_spider", str(_SPIDERS), "everywhere", f"--output={feed}"]
        command += [part for key, value in settings.items() for part in ("-s", f"{key}={value}")]
        command += [part for key, value in arguments.items() for part in ("-a", f"{key}={value}")]
        return self._stage.fleet.launch(name, command)

    async def begin(self) -> None:
        return

    async def more(self) -> None:
        return

    async def kept(self) -> tuple[list[Kept], list[str]]:
        kept = []
        for feed in filter(Path.exists, self._feeds):
            for line in feed.read_bytes().split(b"\n")[:-1]:  # a killed process leaves a torn one
                item = msgspec.json.decode(line)
                kept.append(Kept(item["url"], item["success"], "", item["url"]))
        return kept, []

    async def ends(self) -> list[str]:
        # A process that starts when all is done opens a run with nothing in it, which ends too.
        return [event.kind.value for event in await crawls.ends(self._stage.frontier) if event.run == 1]

    async def close(self) -> None:
        return


class ServiceLane:
    """Two services take requests from the bus and by REST; workers publish pages; the end is told on the bus."""

    workers_end = False

    def __init__(self, stage: Stage, plan: Plan) -> None:
        self._stage = stage
        self._chance = random.Random(f"requests {plan.seed}")
        self._topics = Topics()
        self._shards: Shards | None = None
        self._bus: StreamsBus | None = None

    def start(self, place: str, name: str, address: str) -> Member:
        flags = ["--data-dir", place, *ON_THE_BUS]
        return self._stage.fleet.start(frontier=address, name=name, flags=flags)

    async def begin(self) -> None:
        self._shards = await Shards.connect(self._stage.store.address)
        self._bus = StreamsBus(self._shards, keep_until_acknowledged=self._topics.requests)
        services = [self._stage.crew.add_service() for _ in range(_SERVICES)]
        await asyncio.to_thread(wait_until, lambda: all("REST " in s.member.log for s in services), "the services")
        seeds = self._stage.web.seeds()
        await self._publish(seeds[::2])
        api = services[0].member.log.partition("REST ")[2].split()[0]
        for seed in seeds[1::2]:
            await asyncio.to_thread(_post, f"{api}/feed", _request(seed))
        async with asyncio.timeout(_TOLD_SECONDS):
            while await self._stage.frontier.crawl_info(crawls.CRAWL) is None:  # noqa: ASYNC110 - another process opens it
                await asyncio.sleep(0.05)

    async def more(self) -> None:
        await self._publish(self._chance.sample(self._stage.web.seeds(), 3))

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
