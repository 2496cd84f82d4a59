"""From microdata to items."""

import re
import socket
from datetime import UTC, datetime
from typing import Any

from itemloaders.processors import Identity, Join, MapCompose, TakeFirst
from scrapy import Selector, Spider
from scrapy.http import TextResponse
from scrapy.loader import ItemLoader

from properties.items import Property

_AMOUNT = re.compile(r"[0-9][0-9,]*(?:\.[0-9]+)?")


def amount(text: str) -> float | None:
    """The first number of a text, thousands commas removed; None drops the value."""
    found = _AMOUNT.search(text)
    return float(found[0].replace(",", "")) if found else None


def absolute(link: str, loader_context: dict[str, Any]) -> str:
    """A link as seen from the page it stands on."""
    return str(loader_context["response"].urljoin(link))


class PropertyLoader(ItemLoader):
    """One property."""

    default_item_class = Property
    default_output_processor = TakeFirst()
    title_in = MapCompose(str.strip, str.title)
    price_in = MapCompose(amount)
    description_in = MapCompose(str.strip)
    description_out = Join()
    address_in = MapCompose(str.strip)
    image_urls_in = MapCompose(absolute)
    image_urls_out = Identity()


def load(spider: Spider, response: TextResponse, selector: Selector | None = None, *, title: str = "") -> Property:
    """The property that a page, or one entry of it, describes. A known `title` is not looked for."""
    loader = PropertyLoader(selector=selector or response.selector, response=response)
    if title:
        loader.add_value("title", title)
    else:
        loader.add_xpath("title", './/*[@itemprop="name"][1]/text()')
    loader.add_xpath("price", './/*[@itemprop="price"][1]/text()')
    loader.add_xpath("description", './/*[@itemprop="description"][1]/text()')
    loader.add_xpath("address", './/*[@itemtype="http://schema.org/Place"][1]/text()')
    loader.add_xpath("image_urls", './/*[@itemprop="image"][1]/@src')
    link = selector.xpath('.//*[@itemprop="url"][1]/@href').get() if selector else None
    loader.add_value("url", response.urljoin(link) if link else response.url)
    loader.add_value("project", spider.settings.get("BOT_NAME"))
    loader.add_value("spider", spider.name)
    loader.add_value("server", socket.gethostname())
    loader.add_value("date", datetime.now(UTC))
    return loader.load_item()
