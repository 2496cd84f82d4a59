"""An extension that ends the process between an item and the record of its page."""

import os
import signal
from typing import Any

from scrapy.crawler import Crawler

from gossamer.scrapy.fresh_index import FreshIndex

_store = FreshIndex.store


class DiesBeforeStoring:
    """Ends the process when it is about to store its third page: the items of the page are in the feed."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> "DiesBeforeStoring":
        stored = []

        async def store(index: FreshIndex, key: int, page: Any) -> None:
            stored.append(key)
            if len(stored) == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            await _store(index, key, page)

        FreshIndex.store = store  # type: ignore[method-assign, assignment]
        return cls()
