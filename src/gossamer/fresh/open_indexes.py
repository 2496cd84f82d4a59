"""Page indexes that stay open between two uses, because to open one takes as long as to write to it many times."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from gossamer.fresh.index import PageIndex
from gossamer.model.crawl import CrawlId

_MOST: Final = 16
"""Indexes that stay open. Each has a connection to its database."""


class OpenIndexes:
    """The indexes of crawls that were used last. Blocking; for one thread at a time."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[CrawlId, PageIndex] = OrderedDict()

    def of(self, crawl: CrawlId, opener: Callable[[], PageIndex]) -> PageIndex:
        """Return the index of a crawl, which `opener` opens if it is not open, or was deleted meanwhile. The caller
        does not close it."""
        index = self._indexes.pop(crawl, None)
        if index is not None and not index.is_there():
            index.close()
            index = None
        if index is None:
            index = opener()
            while len(self._indexes) >= _MOST:
                self._indexes.popitem(last=False)[1].close()
        self._indexes[crawl] = index
        return index

    def close(self) -> None:
        """Close all indexes. May be repeated."""
        while self._indexes:
            self._indexes.popitem()[1].close()
