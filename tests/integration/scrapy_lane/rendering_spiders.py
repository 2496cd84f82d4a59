"""Spiders of pages that scripts build. None of them imports anything of Gossamer."""

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import scrapy
from scrapy.http import Response
from scrapy.resolver import dnscache


class Things(scrapy.Spider):
    """Follows all links of a site, and makes an item of each page with a price."""

    name = "things"

    def __init__(self, seeds: str = "", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.start_urls = seeds.split(",")

    def closed(self, reason: str) -> None:
        """Leave the stats behind for the test."""
        Path(os.environ["SPIDER_STATS"]).write_bytes(msgspec.json.encode(dict(self.crawler.stats.get_stats())))

    async def start(self) -> AsyncIterator[Any]:
        dnscache["scripted.test"] = dnscache["shop.test"] = "127.0.0.1"
        async for request in super().start():
            yield request

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"page": response.url, "by": self.crawler.settings["BY"]}
        if price := response.css(".price::text").get():
            yield {"item": response.url, "name": response.css("h1::text").get(), "price": int(price)}
        for href in response.css("a::attr(href), iframe::attr(src)").getall():
            yield response.follow(href, self.parse)


class Asking(Things):
    """Renders what its requests ask for."""

    name = "asking"
    RENDERS: tuple[tuple[str, Any], ...] = (
        ("/built", True),
        ("/plain", False),
        ("/asked", {"steps": ["click #more 1"], "wait": "#late", "capture": "/data", "screenshot": "page"}),
        ("/script", True),
        ("/jar?1", True),
        ("/jar?2", True),
        ("/unknown", {"steps": ["dance"]}),
        ("/selector", {"steps": ["click a[", "scroll"]}),
        ("/long", {"wait": 50, "seconds": 10}),
        ("/key", {"step": "scroll"}),
        ("/kind", 7),
    )

    def parse(self, response: Response) -> Iterator[Any]:
        for path, render in self.RENDERS:
            yield response.follow(path, self.look, meta={"render": render, "cookiejar": path})

    def look(self, response: Response) -> Iterator[Any]:
        rendering = response.meta.get("rendering") or {}
        yield {
            "path": response.url.rpartition("/")[2],
            "kind": type(response).__name__,
            "flags": response.flags,
            "text": response.css("h1::text").get(),
            "status": response.status,
            "type": response.headers["Content-Type"].decode(),
            "steps": rendering.get("steps"),
            "answers": [answer["data"] for answer in rendering.get("answers", ())],
            "screenshot": len(response.meta.get("screenshot", b"")),
            "choice": response.meta.get("render_choice"),
        }
