from collections.abc import Iterator

from scrapy import Request, Spider
from scrapy.http import TextResponse

from properties.items import Property
from properties.loaders import load
from properties.site import at


class ApiSpider(Spider):
    """Reads the JSON list; its titles travel to the next callback."""

    name = "api"
    start_urls = (at("/properties/api.json"),)

    def parse(self, response: TextResponse) -> Iterator[Request]:
        for entry in response.json():
            path = f"property_{entry['id']:06d}.html"
            yield response.follow(path, self.parse_property, meta={"title": entry["title"]})

    def parse_property(self, response: TextResponse) -> Property:
        return load(self, response, title=response.meta["title"])
