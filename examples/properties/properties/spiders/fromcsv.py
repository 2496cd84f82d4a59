import csv
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from scrapy import Item, Request, Spider
from scrapy.http import TextResponse
from scrapy.item import Field
from scrapy.loader import ItemLoader


def read(file: str) -> list[dict[str, str]]:
    """The rows of a CSV file with a header, by its column names."""
    with Path(file).open(newline="") as rows:
        return list(csv.DictReader(rows))


class FromCsvSpider(Spider):
    """`-a file=todo.csv`: a column `url`, the other columns one field each, their cells an XPath or empty."""

    name = "fromcsv"
    file = "todo.csv"

    async def start(self) -> AsyncIterator[Request]:
        for row in read(self.file):
            yield Request(row.pop("url"), cb_kwargs={"paths": row})

    def parse(self, response: TextResponse, paths: dict[str, str]) -> Any:
        item = Item()
        loader = ItemLoader(item=item, response=response)
        for name, path in paths.items():
            item.fields[name] = Field()  # of empty cells too: the first item gives a CSV feed its header
            if path:
                loader.add_xpath(name, path)
        return loader.load_item()
