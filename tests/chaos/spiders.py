"""The spider of the Scrapy lane's runs: an item of every page and of every failure, and every link followed."""

from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar, Self

import scrapy
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.resolver import dnscache
from twisted.python.failure import Failure


class Signature:
    """Signs every request with the name of the process that sends it.

    A redirected request has the User-Agent of the process that sent the one before, which may be another.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler.settings["USER_AGENT"])

    def process_request(self, request: scrapy.Request) -> None:
        request.headers["User-Agent"] = self._name


class Everywhere(scrapy.Spider):
    """`seeds`: URLs with commas between them; `hosts` of the fake web are this machine."""

    name = "everywhere"
    custom_settings: ClassVar = {"DOWNLOADER_MIDDLEWARES": {Signature: 999}}  # next to the downloader

    def __init__(self, seeds: str, hosts: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = seeds.split(",")
        self._hosts = hosts.split(",")

    async def start(self) -> AsyncIterator[Any]:
        for host in self._hosts:
            dnscache[host] = "127.0.0.1"
        for url in self.start_urls:
            yield scrapy.Request(url, errback=self.on_error)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"url": _asked(response.request), "success": True}
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, self.parse, errback=self.on_error)

    def on_error(self, failure: Failure) -> Iterator[Any]:
        yield {"url": _asked(failure.request), "success": False}  # type: ignore[attr-defined]


def _asked(request: scrapy.Request) -> str:
    """The URL as it was linked, before redirects, without its fragment."""
    first: str = request.meta.get("redirect_urls", [request.url])[0]
    return first.partition("#")[0]
