"""Ordinary Scrapy spiders: nothing in them knows of Gossamer."""

import asyncio
import io
import itertools
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import scrapy
from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider, DontCloseSpider
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor
from scrapy.resolver import dnscache
from scrapy.spiders import CrawlSpider, Rule


class StatsFile:
    """Leaves the process's stats behind for the test."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        crawler.signals.connect(self._save, signal=signals.engine_stopped)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "StatsFile":
        return cls(crawler)

    def _save(self) -> None:
        if path := os.environ.get("SPIDER_STATS"):
            stats = dict(self._crawler.stats.get_stats())
            Path(path).write_bytes(msgspec.json.encode(stats))


class LoadsSlowly:
    """An extension that has loaded when somebody writes into the named pipe LOADS_WHEN."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "LoadsSlowly":
        Path(crawler.settings["LOADS_WHEN"]).read_bytes()
        return cls()


class LocalSpider(scrapy.Spider):
    """Every host of the fake web is this machine."""

    def __init__(self, seeds: str = "", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = seeds.split(",") if seeds else []

    async def start(self) -> AsyncIterator[Any]:
        for number in range(100):
            dnscache[f"site{number}.test"] = "127.0.0.1"
        async for request in super().start():
            yield request


class Links(LocalSpider):
    """An item of every page, and every link followed."""

    name = "links"

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, self.parse)


class Counting(Links):
    """Keeps what it has seen on itself."""

    name = "counting"
    pages = 0
    seen: set[str] = set()  # noqa: RUF012 (as projects write it)

    def parse(self, response: Response) -> Iterator[Any]:
        self.pages += 1
        self.seen.add(response.url)
        yield from super().parse(response)


class Watching(Links):
    """Counts the requests that are scheduled and dropped."""

    name = "watching"

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **named: Any) -> "Watching":
        spider = super().from_crawler(crawler, *args, **named)
        crawler.signals.connect(spider.count, signals.request_scheduled)
        crawler.signals.connect(spider.count, signals.request_dropped)
        return spider

    def count(self, signal: object) -> None:
        name = "scheduled" if signal is signals.request_scheduled else "dropped"
        self.crawler.stats.inc_value(f"watched/{name}")


class Starting(LocalSpider):
    """Its `start` yields items, and requests that no frontier can keep. Pages say what extensions find."""

    name = "starting"

    async def start(self) -> AsyncIterator[Any]:
        async for request in super().start():
            yield request
        yield {"started": "one"}
        yield scrapy.Request("data:text/plain,hello", self.local, dont_filter=True)
        yield scrapy.Request(Path(self.file).as_uri(), self.local, dont_filter=True)
        yield {"started": "two"}

    def local(self, response: Response) -> Iterator[Any]:
        yield {"started": response.text}

    def parse(self, response: Response) -> Iterator[Any]:
        scheduler = self.crawler.engine._slot.scheduler
        known = [scheduler.df.request_seen(scrapy.Request(response.urljoin(path))) for path in ("/start", "/never")]
        scheduler.stats.inc_value("read/by_an_extension")
        yield {
            "length": len(scheduler),
            "known": known,
            "fingerprint": scheduler.df.request_fingerprint(response.request),
        }


class Endless(Links):
    """Its `start` waits for more that never comes."""

    name = "endless"

    async def start(self) -> AsyncIterator[Any]:
        async for request in super().start():
            yield request
        await asyncio.Event().wait()


class Flood(Links):
    """Has start requests without end, and closes at its first page, which need not exist: newer requests come first."""

    name = "flood"
    handle_httpstatus_list = [404]  # noqa: RUF012 (as projects write it)

    async def start(self) -> AsyncIterator[Any]:
        async for request in super().start():
            yield request
        for number in itertools.count():
            yield scrapy.Request(f"{self.start_urls[0]}?{number}")

    def parse(self, response: Response) -> Iterator[Any]:
        raise CloseSpider("enough")


class Ending(Links):
    """Closes when its `start` is at its end."""

    name = "ending"

    async def start(self) -> AsyncIterator[Any]:
        async for request in super().start():
            yield request
        if "local" in vars(self):
            yield scrapy.Request(f"{self.start_urls[0]}?local", lambda response: iter([{"url": response.url}]))
        raise CloseSpider("no more")


class Staying(Links):
    """Wants to stay when there is no work, as a service does."""

    name = "staying"

    @classmethod
    def from_crawler(cls, crawler: Crawler, *args: Any, **kwargs: Any) -> "Staying":
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.stay, signal=signals.spider_idle)
        return spider

    def stay(self) -> None:
        raise DontCloseSpider


class Order(LocalSpider):
    """Asks for six numbered pages at once and says in which order they came."""

    name = "order"

    def parse(self, response: Response) -> Iterator[Any]:
        for number in range(6):
            yield response.follow(f"/order/{number}", self.note)

    def note(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


class Everything(LocalSpider):
    """Requests of every kind; each item says what came back of it."""

    name = "everything"

    def parse(self, response: Response) -> Iterator[Any]:
        yield scrapy.Request(
            response.urljoin("/kwargs"),
            self.with_arguments,
            cb_kwargs={"text": "höre", "pair": (1, 2), "when": datetime(2026, 1, 2, tzinfo=UTC)},
            meta={"names": {"a", "b"}, "nested": {"bytes": b"\x00\xff", 3: None}},
            headers={"X-Two": ["one", "two"]},
            cookies={"c": "1"},
            flags=["kept"],
        )
        yield scrapy.Request(response.urljoin("/missing"), self.never, errback=self.on_error)
        yield scrapy.FormRequest(response.urljoin("/form"), callback=self.with_body, formdata={"user": "me"})
        yield scrapy.http.JsonRequest(response.urljoin("/json"), callback=self.with_body, data={"a": [1, 2.5]})
        yield scrapy.Request(response.urljoin("/item"), self.with_item, meta={"item": Thing(name="n", tags=["t"])})
        yield scrapy.Request(response.urljoin("/teapot"), self.teapot, meta={"handle_httpstatus_list": [418]})
        yield scrapy.Request(response.urljoin("/kwargs#again"), self.never)
        yield scrapy.Request(response.urljoin("/twice"), self.counted, dont_filter=True)
        yield scrapy.Request(response.urljoin("/twice"), self.counted, dont_filter=True)

    def with_arguments(self, response: Response, text: str, pair: Any, when: Any) -> Iterator[Any]:
        request = response.request
        yield {
            "what": "kwargs",
            "text": text,
            "pair": repr(pair),
            "when": repr(when),
            "names": sorted(request.meta["names"]),
            "nested": repr(request.meta["nested"]),
            "two": [value.decode() for value in request.headers.getlist("X-Two")],
            "flags": request.flags,
            "depth": response.meta["depth"],
        }

    def with_body(self, response: Response) -> Iterator[Any]:
        request = response.request
        yield {
            "what": type(request).__name__,
            "method": request.method,
            "body": request.body.decode(),
            "kind": request.headers[b"Content-Type"].decode(),
        }

    def with_item(self, response: Response) -> Iterator[Any]:
        item = response.meta["item"]
        yield {"what": "item", "class": type(item).__name__, "name": item["name"], "tags": item["tags"]}

    def teapot(self, response: Response) -> Iterator[Any]:
        yield {"what": "teapot", "status": response.status}

    def counted(self, response: Response) -> Iterator[Any]:
        yield {"what": "twice"}

    def on_error(self, failure: Any) -> Iterator[Any]:
        yield {"what": "error", "status": failure.value.response.status, "url": failure.request.url}

    def never(self, response: Response) -> None:
        raise AssertionError("nobody should come here")


class Thing(scrapy.Item):
    name = scrapy.Field()
    tags = scrapy.Field()


class Breaking(LocalSpider):
    """Breaks on one page of three."""

    name = "breaking"

    def parse(self, response: Response) -> Iterator[Any]:
        for path in ("/good", "/bad", "/fine"):
            yield response.follow(path, self.leaf)

    def leaf(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}
        if response.url.endswith("/bad"):
            raise RuntimeError("as it should")


class Lambda(LocalSpider):
    """A callback that nobody can name."""

    name = "lambda"

    def parse(self, response: Response) -> Iterator[Any]:
        seen = response.url
        yield response.follow("/good", lambda answer: iter([{"url": answer.url, "from": seen}]))
        yield response.follow("/fine", self.leaf)

    def leaf(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


class Large(LocalSpider):
    """A form of two megabytes, which the frontier does not take."""

    name = "large"

    def parse(self, response: Response) -> Iterator[Any]:
        yield response.follow("/good", self.leaf, method="POST", body=b"x" * (2 << 20))
        yield response.follow("/fine", self.leaf)

    def leaf(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url}


class BrokenFile(io.BytesIO):
    """Takes everything and gives nothing on, in a way that no disk has."""

    def flush(self) -> None:
        raise RuntimeError("this feed is of no use")

    def close(self) -> None:
        return


class BrokenStorage:
    """Of a project's own."""

    def __init__(self, uri: str, *, feed_options: Any = None) -> None:
        pass

    def open(self, spider: Any) -> BrokenFile:
        return BrokenFile()

    def store(self, file: Any) -> None:
        return


class Rules(CrawlSpider):
    """A CrawlSpider as the documentation shows one."""

    name = "rules"
    rules = (Rule(LinkExtractor(allow="/p/"), callback="page", follow=True),)

    def __init__(self, seeds: str = "", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = seeds.split(",")
        for number in range(100):
            dnscache[f"site{number}.test"] = "127.0.0.1"

    def page(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "rule": response.meta["rule"], "text": response.meta["link_text"]}


class Deadly(Links):
    """Dies of one page, without a word."""

    name = "deadly"

    def parse(self, response: Response) -> Iterator[Any]:
        if response.url.endswith("/deadly"):
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().parse(response)


class Blocking(Links):
    """Holds up its process for longer than a heartbeat with each page below /slow."""

    name = "blocking"

    def parse(self, response: Response) -> Iterator[Any]:
        if "/slow" in response.url:
            time.sleep(2.5)
        yield from super().parse(response)


class Pictures(LocalSpider):
    """Downloads five pictures for its item, past the scheduler, as a media pipeline does."""

    name = "pictures"

    async def parse(self, response: Response) -> AsyncIterator[Any]:
        pictures = [scrapy.Request(response.urljoin(f"/picture/{number}")) for number in range(5)]
        answers = await asyncio.gather(*map(self.crawler.engine.download_async, pictures))
        yield {"url": response.url, "pictures": [answer.status for answer in answers]}


class HostOnly:
    """A project's own fingerprinter: whatever the query says, a page is the same."""

    def fingerprint(self, request: scrapy.Request) -> bytes:
        return request.url.partition("?")[0].encode()


class OffersSpider(scrapy.Spider):
    """Yields items without a request, some of which do not fit a table of numbers."""

    name = "offers"

    async def start(self) -> AsyncIterator[Any]:
        for number in range(int(self.count)):
            price = "a lot" if number % 100 == 50 else number / 4
            key = {} if self.keyless == "yes" else {"url": f"https://a.test/{number}"}
            yield {**key, "title": f"Offer {number}", "price": price, "tags": ["a", str(number)]}
            if number % 20 == 0:
                await asyncio.sleep(0.02)


class Products(LocalSpider):
    """An item of the list of a shop, and of each product."""

    name = "products"
    version = ""

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": response.url, "title": response.css("h1::text").get()}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, self.parse_product, cb_kwargs={"version": self.version})

    def parse_product(self, response: Response, version: str) -> Iterator[Any]:
        if response.css("h1.busy"):
            yield response.request.replace(dont_filter=True)
            return
        yield {"url": response.url, "title": response.css("h1::text").get() + version}


class PoisonedPipeline:
    """Ends the process or fails, as POISON says, after it got the item of the page `poison`."""

    def __init__(self, poison: str) -> None:
        self._poison = poison

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "PoisonedPipeline":
        return cls(crawler.settings["POISON"])

    def process_item(self, item: Any) -> Any:
        if item["title"] == "poison" and self._poison == "fails":
            raise ValueError(item["url"])
        if item["title"] == "poison" and self._poison == "kills":
            os.kill(os.getpid(), signal.SIGKILL)
        return item
