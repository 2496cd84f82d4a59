from collections.abc import Iterator

from scrapy import Request, Spider
from scrapy.http import TextResponse

from properties.items import Property
from properties.loaders import load
from properties.site import at


class ManualSpider(Spider):
    """Index pages one way, details the other."""

    name = "manual"
    start_urls = (at("/properties/index_00000.html"),)

    def parse(self, response: TextResponse) -> Iterator[Request]:
        """Last in, first out: the details yielded last are fetched before the next index page.

        @page /properties/index_00000.html
        @returns requests 31 31
        """
        for link in response.xpath('//*[contains(@class, "next")]//@href').getall():
            yield response.follow(link)
        for link in response.xpath('//*[@itemprop="url"]/@href').getall():
            yield response.follow(link, self.parse_property)

    def parse_property(self, response: TextResponse) -> Property:
        """@page /properties/property_000001.html
        @returns items 1
        @scrapes title price url
        """
        return load(self, response)
