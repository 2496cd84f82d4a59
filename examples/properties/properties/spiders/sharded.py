from collections.abc import AsyncIterator

from scrapy import Request
from scrapy.http import TextResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import Rule

from properties.shards import shards
from properties.spiders.easy import EasySpider
from properties.spiders.fromcsv import read


class ShardedSpider(EasySpider):
    """As `easy`, from many starting points at a time. Each shard ends where the next one begins.

    The starting points are those of a file (`-a file=starts.csv`), or `-a shards=20` of `-a indexes=1667` index pages.
    """

    name = "sharded"
    file = ""
    indexes = 1667
    shards = 20
    rules = (
        Rule(LinkExtractor(restrict_xpaths='//*[contains(@class, "next")]'), process_request="within_shard"),
        EasySpider.rules[1],
    )

    async def start(self) -> AsyncIterator[Request]:
        for row in read(self.file) if self.file else shards(int(self.indexes), int(self.shards)):
            yield Request(row["url"], meta={"pages": int(row["pages"])})

    def within_shard(self, request: Request, response: TextResponse) -> Request | None:
        """Drop the next index page if it belongs to the next shard."""
        left = response.meta["pages"] - 1
        return request.replace(meta={**request.meta, "pages": left}) if left else None
