"""The two kinds of workers that a crawl may be interrupted with: the fast ones, and Scrapy's on the same frontier."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from gossamer.fakeweb import FakeWeb
from gossamer.frontier.valkey import ValkeyFrontier
from gossamer.model.crawl import CrawlId, Terms
from gossamer.model.record import PageRecord
from gossamer.sinks.jsonl import read_records
from tests.servers import crawls
from tests.servers.fleet import Fleet
from tests.servers.scraping import QUIET, SPIDERS

_CONCURRENCY = 64
_PER_DOMAIN = 8


class Lane(Protocol):
    """How a crawl of a web is begun, worked on, and what it left."""

    crawl: CrawlId

    async def begin(self, frontier: ValkeyFrontier, web: FakeWeb) -> None:
        """Feed it, where the workers do not do so themselves."""

    def start(self, fleet: Fleet, address: str, web: FakeWeb, output: Path, dead_after_seconds: float) -> None:
        """One more worker, which ends by itself or at SIGTERM."""

    def records(self, outputs: Sequence[Path]) -> tuple[Counter[str], int]:
        """How often each page was written, and how many records of failures there are."""


class FastLane:
    """`gossamer worker`."""

    crawl = crawls.CRAWL

    async def begin(self, frontier: ValkeyFrontier, web: FakeWeb) -> None:
        await crawls.open_crawl(frontier, web.seeds(), Terms())

    def start(self, fleet: Fleet, address: str, web: FakeWeb, output: Path, dead_after_seconds: float) -> None:
        environment = {
            "GOSSAMER_WORKER__HEARTBEAT": str(dead_after_seconds),
            "GOSSAMER_WORKER__CONCURRENCY": str(_CONCURRENCY),
        }
        fleet.start(frontier=address, output=output, environment=environment)

    def records(self, outputs: Sequence[Path]) -> tuple[Counter[str], int]:
        pages: Counter[str] = Counter()
        failed = 0
        for path in outputs:
            for record in read_records(path):
                if isinstance(record, PageRecord) and record.success:
                    pages[record.url] += 1
                else:
                    failed += 1
        return pages, failed


class ScrapyLane:
    """A plain Scrapy spider with our scheduler; an item of every page, in Scrapy's own feed."""

    crawl = CrawlId("scrapybot", "links")

    async def begin(self, frontier: ValkeyFrontier, web: FakeWeb) -> None:
        return  # the spiders' start requests do

    def start(self, fleet: Fleet, address: str, web: FakeWeb, output: Path, dead_after_seconds: float) -> None:
        settings = {
            **QUIET,
            "EXTENSIONS": "{}",
            "SCHEDULER": "gossamer.scrapy.Scheduler",
            "GOSSAMER_FRONTIER": address,
            "GOSSAMER_WORKER__HEARTBEAT": dead_after_seconds,
            "CONCURRENT_REQUESTS": _CONCURRENCY,
            "CONCURRENT_REQUESTS_PER_DOMAIN": _PER_DOMAIN,
            "DOWNLOAD_DELAY": 0,
            "ROBOTSTXT_OBEY": False,
        }
        command = [sys.executable, "-m", "tests.servers.run_spider", str(SPIDERS), "links", f"--output={output}"]
        command += [part for key, value in settings.items() for part in ("-s", f"{key}={value}")]
        fleet.launch(f"scrapy{len(fleet.members)}", [*command, "-a", f"seeds={','.join(web.seeds())}"])

    def records(self, outputs: Sequence[Path]) -> tuple[Counter[str], int]:
        lines = [line for path in outputs for line in path.read_bytes().splitlines()]
        return Counter(msgspec.json.decode(line)["url"] for line in lines), 0
