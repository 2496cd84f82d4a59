"""Spiders of the service's crawl requests, for tests; run in processes of their own."""

from collections.abc import Iterator
from typing import Any

from scrapy import Request
from scrapy.http import Response
from scrapy.resolver import dnscache
from scrapy.settings import BaseSettings

from gossamer.scrapy.cluster import spiders

for number in range(100):
    dnscache[f"site{number}.test"] = "127.0.0.1"


HERE = {"GOSSAMER_ALLOW_NETWORKS": "127.0.0.0/8, fd00::/8"}


class Walker(spiders.LinkSpider):
    """Every page and every link in scope."""

    name = "walker"
    custom_settings = HERE


class Shy(spiders.LinkSpider):
    """Keeps to the public internet."""

    name = "shy"


class Stroller(spiders.WanderingSpider):
    name = "stroller"
    custom_settings = HERE


class Finder(spiders.ClusterSpider):
    """Hands login pages to `login`, and everything else to the fast worker's `link`."""

    name = "finder"
    custom_settings = HERE

    def parse(self, response: Response) -> Iterator[Any]:
        item = self.page(response)
        item["response_headers"] = self.reconstruct_headers(response)
        yield item
        if b"password" in response.body:
            yield response.request.replace(meta={"spiderid": "login", "attrs": {"from": response.url}})
            return
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href, meta={"spiderid": "link"})


class Passing(spiders.ClusterSpider):
    """Hands every page to `walker`."""

    name = "passing"
    custom_settings = HERE

    def parse(self, response: Response) -> Iterator[Any]:
        yield self.page(response)
        yield Request(response.url, meta={"spiderid": "walker"})


class Login(spiders.ClusterSpider):
    """Gets what others hand over."""

    name = "login"
    custom_settings = HERE

    def parse(self, response: Response) -> Iterator[Any]:
        yield self.page(response)
        yield {"logged_in": response.url}
        yield Request(response.urljoin("/inside"), callback=self.inside, priority=7)

    def inside(self, response: Response) -> Iterator[Any]:
        yield self.page(response)


class Unpublished(spiders.ClusterSpider):
    """Loses its pipeline on the way."""

    name = "unpublished"

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        super().update_settings(settings)
        settings.set("ITEM_PIPELINES", {}, priority=100)
