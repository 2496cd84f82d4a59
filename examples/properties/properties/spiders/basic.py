from scrapy import Spider
from scrapy.http import TextResponse

from properties.items import Property
from properties.loaders import load
from properties.site import at


class BasicSpider(Spider):
    """One page."""

    name = "basic"
    start_urls = (at("/properties/property_000000.html"),)

    def parse(self, response: TextResponse) -> Property:
        """One property.

        @page /properties/property_000000.html
        @returns items 1
        @scrapes title price description address image_urls
        @scrapes url project spider server date
        """
        return load(self, response)
