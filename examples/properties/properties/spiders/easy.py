from scrapy.http import TextResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

from properties.items import Property
from properties.loaders import load
from properties.site import at


class EasySpider(CrawlSpider):
    """As `manual`, in two rules."""

    name = "easy"
    start_urls = (at("/properties/index_00000.html"),)
    rules = (
        Rule(LinkExtractor(restrict_xpaths='//*[contains(@class, "next")]')),
        Rule(LinkExtractor(restrict_xpaths='//*[@itemprop="url"]'), callback="parse_property"),
    )

    def parse_property(self, response: TextResponse) -> Property:
        return load(self, response)
