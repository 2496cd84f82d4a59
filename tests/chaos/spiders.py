"""The spider of the Scrapy lane's runs: an item of every page and of every failure, and every link followed."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import Response
from scrapy.resolver import dnscache
from twisted.python.failure import Failure


class Everywhere(scrapy.Spider):
    """`seeds`: URLs with commas between them; `hosts` of the fake web are this machine."""

    name = "everywhere"

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
