"""Crawls a site with Scrapy: alone, with scrapy-redis, or in Gossamer's Scrapy lane. The first two run in the peers'
environment, which has no Gossamer.

Stock settings but for what a comparison needs: no log, no remote consoles, no robots.txt, 64 requests in flight. Pages
go through a pipeline of five lines, which costs less than a feed export. scrapy-redis is used as its scheduler and
duplicate filter below a plain spider: its own RedisSpider needs `start_requests`, which Scrapy has removed.
"""

import argparse
import hashlib
import http
import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Headers, Response
from scrapy.linkextractors import LinkExtractor
from scrapy.resolver import dnscache
from scrapy.spiders import CrawlSpider, Rule


class Pages(scrapy.Spider):
    """Follows every link."""

    name = "pages"

    def __init__(self, seeds: list[str], **options: Any) -> None:
        super().__init__(**options)
        self.seeds = seeds
        self.links = LinkExtractor()

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """The first page of every host."""
        for url in self.seeds:
            yield scrapy.Request(url)

    def parse(self, response: Response) -> Iterator[dict[str, Any] | scrapy.Request]:
        """The page, and what it links to."""
        yield _record(response)
        for link in self.links.extract_links(response):
            yield scrapy.Request(link.url)


class Titles(Pages):
    """Follows every link with an extractor that it makes for each page, and reads a title."""

    name = "titles"

    def parse(self, response: Response) -> Iterator[dict[str, Any] | scrapy.Request]:
        """The page with its title, and what it links to."""
        yield _record(response) | {"title": response.css("title::text").get()}
        for link in LinkExtractor().extract_links(response):
            yield response.follow(link, self.parse)


class Rules(CrawlSpider):
    """Follows every link by a rule, and reads a title and a heading."""

    name = "rules"
    rules = (Rule(LinkExtractor(), callback="page", follow=True),)

    def __init__(self, seeds: list[str], **options: Any) -> None:
        super().__init__(**options)
        self.seeds = seeds

    async def start(self) -> AsyncIterator[scrapy.Request]:
        """The first page of every host."""
        for url in self.seeds:
            yield scrapy.Request(url)

    def parse_start_url(self, response: Response) -> dict[str, Any]:
        """The first page."""
        return self.page(response)

    def page(self, response: Response) -> dict[str, Any]:
        """A page with its title and heading."""
        title, heading = response.css("title::text").get(), response.xpath("//h1/text()").get()
        return _record(response) | {"title": title, "heading": heading}


SPIDERS = {spider.name: spider for spider in (Pages, Titles, Rules)}


def _record(response: Response) -> dict[str, Any]:
    """The fields of Gossamer's page record, as far as Scrapy knows them: every crawler here writes the same."""
    request = response.request
    chain = response.meta.get("redirect_urls", [])
    latency = response.meta.get("download_latency", 0.0)
    url = chain[0] if chain else request.url
    return {
        "type": "page",
        "appid": "bench",
        "crawlid": "scrapy",
        "spiderid": "link",
        "request_id": hashlib.blake2b(url.encode(), digest_size=16).hexdigest(),
        "attempt": response.meta.get("retry_times", 0),
        "depth": response.meta.get("depth", 0),
        "url": url,
        "response_url": response.url,
        "status_code": response.status,
        "status_msg": http.HTTPStatus(response.status).phrase,
        "response_headers": _texts(response.headers),
        "request_headers": _texts(request.headers),
        "body": response.text,
        "body_encoding": "text",
        "encoding": response.encoding,
        "content_type": response.headers.get("Content-Type", b"").decode("latin-1"),
        "links": [],
        "attrs": None,
        "timestamp": datetime.now(UTC).isoformat(timespec="microseconds"),
        "success": True,
        "reason": "",
        "exception": "",
        "redirects": chain,
        "timings": {"dns": 0.0, "connect": 0.0, "tls": 0.0, "first_byte": latency, "total": latency},
        "ip": str(response.ip_address or ""),
        "truncated": False,
    }


def _texts(headers: Headers) -> dict[str, list[str]]:
    return {name.decode("latin-1"): [value.decode("latin-1") for value in values] for name, values in headers.items()}


class Lines:
    """One JSON line a page."""

    def __init__(self, path: str) -> None:
        self.encode = json.JSONEncoder(ensure_ascii=False).encode
        self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115 (closed with the spider)

    @classmethod
    def from_crawler(cls, crawler: Any) -> "Lines":
        return cls(crawler.settings["BENCH_OUTPUT"])

    def process_item(self, item: dict[str, Any]) -> dict[str, Any]:
        self.file.write(self.encode(item) + "\n")
        return item

    def close_spider(self) -> None:
        self.file.close()


def main() -> None:
    """Crawl what the arguments say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", required=True, help="file with a URL a line")
    parser.add_argument("--output", required=True)
    parser.add_argument("--address", required=True, help="host:port that all hosts are at")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--redis", help="address of a server: use scrapy-redis on it")
    parser.add_argument("--frontier", help="address of a server: use Gossamer's scheduler on it")
    parser.add_argument("--addon", action="store_true", help="with --frontier: use all of Gossamer's add-on")
    parser.add_argument("--spider", choices=SPIDERS, default=Pages.name)
    arguments = parser.parse_args()
    with open(arguments.seeds, encoding="utf-8") as file:
        seeds = file.read().split()
    settings: dict[str, Any] = {
        "LOG_ENABLED": False,
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
        "ROBOTSTXT_OBEY": False,
        "DOWNLOAD_DELAY": 0,
        "CONCURRENT_REQUESTS": arguments.concurrency,
        "CONCURRENT_REQUESTS_PER_DOMAIN": arguments.concurrency,
        "ITEM_PIPELINES": {Lines: 1},
        "BENCH_OUTPUT": arguments.output,
    }
    if arguments.redis:
        settings |= {
            "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
            "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
            "REDIS_URL": arguments.redis,
        }
    if arguments.frontier:
        lane = (
            {"ADDONS": {"gossamer.scrapy.Addon": 0}} if arguments.addon else {"SCHEDULER": "gossamer.scrapy.Scheduler"}
        )
        settings |= {**lane, "GOSSAMER_FRONTIER": arguments.frontier}
    process = CrawlerProcess(settings)
    process.crawl(SPIDERS[arguments.spider], seeds=seeds)
    # Every host is at one address; the reactor's resolver asks this cache before it asks anybody.
    for url in seeds:
        dnscache[urlsplit(url).hostname] = arguments.address.rpartition(":")[0]
    process.start()


if __name__ == "__main__":
    main()
