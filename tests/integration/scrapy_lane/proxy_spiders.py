"""A spider for the tests of proxies."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import Response
from twisted.python.failure import Failure


class Proxied(scrapy.Spider):
    """Requests `urls`, and reports what it sees of the proxy."""

    name = "proxied"
    custom_settings = {"ROBOTSTXT_OBEY": False, "HTTPERROR_ALLOW_ALL": True}  # noqa: RUF012 (as projects write it)

    def __init__(self, urls: str, downloads: str = "", **arguments: Any) -> None:
        """`downloads`: URLs that are fetched beside the queue, as by a media pipeline."""
        super().__init__(**arguments)
        self._urls = urls.split(",")
        self._downloads = [url for url in downloads.split(",") if url]

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for url in self._urls:
            yield scrapy.Request(url, callback=self.parse, errback=self.on_error)

    async def parse(self, response: Response) -> AsyncIterator[dict[str, Any]]:
        assert response.request is not None
        engine = self.crawler.engine
        assert engine is not None
        await asyncio.gather(*(engine.download_async(scrapy.Request(url)) for url in self._downloads))
        yield {
            "url": response.url,
            "status": response.status,
            "meta": {name: str(value) for name, value in response.meta.items()},
            "headers": response.request.headers.to_string().decode(),
        }

    def on_error(self, failure: Failure) -> Iterator[dict[str, Any]]:
        yield {"url": failure.request.url, "error": failure.getErrorMessage()}
