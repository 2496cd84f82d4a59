"""A spider for the tests of proxies."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import Response
from twisted.python.failure import Failure


class Proxied(scrapy.Spider):
    """Requests `urls`, and reports what it sees of the proxy."""

    name = "proxied"
    custom_settings = {"ROBOTSTXT_OBEY": False, "HTTPERROR_ALLOW_ALL": True}  # noqa: RUF012 (as projects write it)

    def __init__(self, urls: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._urls = urls.split(",")

    async def start(self) -> AsyncIterator[scrapy.Request]:
        for url in self._urls:
            yield scrapy.Request(url, callback=self.parse, errback=self.on_error)

    def parse(self, response: Response) -> Iterator[dict[str, Any]]:
        assert response.request is not None
        yield {
            "url": response.url,
            "status": response.status,
            "meta": {name: str(value) for name, value in response.meta.items()},
            "headers": response.request.headers.to_string().decode(),
        }

    def on_error(self, failure: Failure) -> Iterator[dict[str, Any]]:
        yield {"url": failure.request.url, "error": failure.getErrorMessage()}
