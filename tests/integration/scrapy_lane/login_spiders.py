"""A spider that logs in, for the tests of shared cookies."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.http import FormRequest, Response
from scrapy.resolver import dnscache

dnscache["members.test"] = "127.0.0.1"


class Member(scrapy.Spider):
    """Logs in once, and follows the pages of members from there, in any process."""

    name = "member"
    custom_settings = {"ROBOTSTXT_OBEY": False}  # noqa: RUF012 (as projects write it)

    def __init__(self, base: str, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._base = base

    async def start(self) -> AsyncIterator[scrapy.Request]:
        yield scrapy.Request(f"{self._base}/login", callback=self.log_in, cookies={"theme": "dark"})

    def log_in(self, response: Response) -> Iterator[scrapy.Request]:
        yield FormRequest.from_response(response, formdata={"user": "alice", "password": "wonderland"})

    def parse(self, response: Response, **_: Any) -> Iterator[Any]:
        assert response.request is not None
        cookie = response.request.headers.get("Cookie", b"").decode()
        yield {"url": response.url, "member": response.css("#member::text").get(), "theme": "theme=dark" in cookie}
        for link in response.css("a::attr(href)").getall():
            if link.startswith("/p/"):
                yield response.follow(link)
