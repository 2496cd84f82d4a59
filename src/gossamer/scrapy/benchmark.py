"""A spider that is as slow as you ask for, to learn what limits a crawl: `gossamer bench`.

`python -m gossamer.scrapy.benchmark URL OPTIONS NUMBER` runs it, with `BenchmarkOptions` as JSON and the number of the
process. Its pipeline can wait, block, use the CPU or call an API.
"""

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
from scrapy import Request, Spider
from scrapy.crawler import Crawler, CrawlerProcess
from scrapy.exceptions import CloseSpider
from scrapy.http import Response
from scrapy.http.request import NO_CALLBACK
from twisted.python.failure import Failure

from gossamer.fakeweb.benchmark import BenchmarkOptions


class BenchmarkSpider(Spider):
    """Follows chains of index pages and takes items from their details."""

    name = "bench"

    def __init__(self, url: str, given: BenchmarkOptions, number: int, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.url = url
        self.given = given
        self.number = number
        self.benchmark_knobs = given.knobs
        """For the recording: only runs with the same ones are compared."""

    async def start(self) -> AsyncIterator[Request]:
        """Yield the beginning of each chain that is this process's."""
        for chain in range(self.number, self.given.starts, self.given.processes):
            url = f"{self.url}/index/{chain}/0"
            yield Request(url, callback=self.parse_index, errback=self.stop, dont_filter=True)

    def parse_index(self, response: Response) -> Iterator[Request]:
        """Follow the links of an index page, that to the next one first."""
        for link in response.css("a"):
            is_next = link.attrib.get("class") == "next"
            yield response.follow(
                link.attrib["href"],
                callback=self.parse_index if is_next else self.parse_detail,
                errback=self.stop,
                priority=1 if is_next else 0,
            )

    def stop(self, failure: Failure) -> None:
        """End the crawl: the server is gone, because the command was killed."""
        raise CloseSpider("no_server")

    def parse_detail(self, response: Response) -> Iterator[dict[str, Any]]:
        """Return the items of a page."""
        for number in range(self.given.items_per_page):
            yield {"url": response.url, "number": number}


class BenchmarkPipeline:
    """Does with each item what the options say."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        spider = crawler.spider
        assert isinstance(spider, BenchmarkSpider)
        self._given, self._url = spider.given, spider.url
        self._pool = ThreadPoolExecutor(self._given.slots)
        self._store = asyncio.Semaphore(self._given.slots)

    async def process_item(self, item: Any) -> Any:
        """Return the item, after the work."""
        seconds = self._given.pipeline_time
        match self._given.pipeline:
            case "wait":
                await asyncio.sleep(seconds)
            case "block":
                _block(seconds)
            case "cpu":
                _use_cpu(seconds)
            case "threads":
                await asyncio.get_running_loop().run_in_executor(self._pool, _block, seconds)
            case "store":
                async with self._store:
                    await asyncio.sleep(seconds)
        for number in range(self._given.api_calls):
            url = f"{self._url}/api/{item['url'].rpartition('/')[2]}/{item['number']}/{number}"
            if self._given.direct:
                await _fetch(url)
            else:
                assert self._crawler.engine is not None
                await self._crawler.engine.download_async(Request(url, callback=NO_CALLBACK))
        return item

    def close_spider(self) -> None:
        """End the threads."""
        self._pool.shutdown()


def _block(seconds: float) -> None:
    """Wait as a driver of a database does that has no asynchronous calls."""
    time.sleep(seconds)


def _use_cpu(seconds: float) -> None:
    """Use this much CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def _fetch(url: str) -> bytes:
    """Return the answer of the API, without Scrapy."""
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        writer.write(f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        return await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split()[0]))
    finally:
        writer.close()


def bench_settings(given: BenchmarkOptions) -> dict[str, Any]:
    """Return Scrapy's settings for these options."""
    return {
        "BOT_NAME": "bench",
        "EXTENSIONS": {"gossamer.scrapy.PerformanceView": 0} if given.measured else {},
        "ITEM_PIPELINES": {BenchmarkPipeline: 500},
        "CONCURRENT_REQUESTS": given.concurrency,
        # Pages and API are one site here.
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1_000_000,
        "DOWNLOAD_DELAY": 0,
        "CONCURRENT_ITEMS": given.item_concurrency,
        "SCRAPER_SLOT_MAX_ACTIVE_SIZE": given.held_bytes,
        "GOSSAMER_DATA_DIR": given.data_dir,
        "GOSSAMER_PERFORMANCE_LOG": given.log_seconds,
        "LOG_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "ROBOTSTXT_OBEY": False,
        "RETRY_ENABLED": False,
    }


def main() -> int:
    """Run the spider, with its figures on standard output. Returns the exit code."""
    url, text, number = sys.argv[1:4]
    given = msgspec.json.decode(text, type=BenchmarkOptions)
    shown = logging.getLogger("gossamer.scrapy.performance")
    shown.setLevel(logging.INFO)
    shown.addHandler(logging.StreamHandler(sys.stdout))
    process = CrawlerProcess(bench_settings(given))
    crawler = process.create_crawler(BenchmarkSpider)
    process.crawl(crawler, url=url, given=given, number=int(number))
    process.start()
    assert crawler.stats is not None
    return 0 if crawler.stats.get_value("finish_reason") == "finished" else 1


if __name__ == "__main__":
    sys.exit(main())
