"""Items of a property."""

import scrapy


class Property(scrapy.Item):
    """Primary fields come from the page, computed ones from pipelines, housekeeping ones from the run."""

    title = scrapy.Field()
    price = scrapy.Field()
    description = scrapy.Field()
    address = scrapy.Field()
    image_urls = scrapy.Field()

    images = scrapy.Field()
    location = scrapy.Field()
    ip = scrapy.Field()
    words = scrapy.Field()

    url = scrapy.Field()
    project = scrapy.Field()
    spider = scrapy.Field()
    server = scrapy.Field()
    date = scrapy.Field()
