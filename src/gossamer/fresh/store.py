"""The page indexes of a service: one for each crawl that is kept up to date, in one folder or database. Blocking."""

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from gossamer.errors import BadInput
from gossamer.fresh.database import index_versions
from gossamer.fresh.index import PageIndex
from gossamer.fresh.open_indexes import OpenIndexes
from gossamer.fresh.rounds import KeptCrawl
from gossamer.model.crawl import CrawlId, QueryOrder, Terms
from gossamer.policy.parameters import dropped_parameters
from gossamer.policy.urls import with_sorted_query
from gossamer.sinks.stores.address import is_store

_KEPT: Final = "kept"
"""Fact of an index whose pages a service visits: the crawl and the options of its requests."""


class IndexStore:
    """Page indexes in a folder of SQLite files, for the processes of one machine, or in a PostgreSQL database."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._open = OpenIndexes()
        """Indexes into which `keep` has written."""
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        """Return the names of all indexes, which are tokens of crawls. Raises SinkError."""
        return list(self.versions())

    def versions(self) -> dict[str, object]:
        """Return all indexes by name. The value is another one soon after their facts have changed. Raises
        SinkError."""
        return index_versions(self._place)

    def open(self, name: str, crawl: CrawlId | None = None) -> PageIndex:
        """Open the index with this name; with `crawl`, make it if it does not exist. Raises SinkError."""
        address = self._place if is_store(self._place) else str(Path(self._place) / f"{name}.sqlite")
        index = PageIndex.open(address, name, crawl_id=str(crawl) if crawl is not None else "")
        if (kept := kept_crawl(index)) is not None:
            index.key_of = page_identity(kept.terms)
        return index

    def find(self, crawl: CrawlId) -> PageIndex:
        """Open the index of a crawl. Raises BadInput for a crawl that has none."""
        index = self.get(crawl)
        if index is None:
            raise BadInput(f"the crawl {crawl} is not kept up to date. Submit its requests with recrawl.")
        return index

    def get(self, crawl: CrawlId) -> PageIndex | None:
        """Open the index of a crawl. None: it has none."""
        if crawl.token not in self.names():
            return None
        index = self.open(crawl.token, crawl)
        kept = kept_crawl(index)
        if kept is not None and kept.terms.recrawl is not None:
            index.follow(kept.terms.recrawl)
        return index

    def keep(
        self, crawls: Sequence[KeptCrawl], seeds: Mapping[CrawlId, Mapping[str, Terms]] = MappingProxyType({})
    ) -> None:
        """Note that these crawls are kept up to date; of several of one crawl, the last one decides. `seeds`: submitted
        URLs by crawl, each with the terms of its request. May be repeated. Any thread may call it."""
        latest = {kept.crawl.id: kept for kept in crawls}
        with self._lock:
            for crawl in latest.keys() | seeds.keys():
                self._keep(crawl, latest.get(crawl), seeds.get(crawl, {}))

    def _keep(self, crawl: CrawlId, kept: KeptCrawl | None, seeds: Mapping[str, Terms]) -> None:
        index = self._open.of(crawl, lambda: self.open(crawl.token, crawl))
        if kept is not None and index.fact(_KEPT) != (text := msgspec.json.encode(kept).decode()):
            index.note(_KEPT, text)
            # PostgreSQL tells others what an idle connection has changed after a while only (`versions`).
            index.close()
        kept = kept or kept_crawl(index)
        if kept is not None:
            index.key_of = page_identity(kept.terms)
        index.scopes.note({index.key(url): terms for url, terms in seeds.items()})

    def end_visits(self, crawl: CrawlId, *, spider: str | None = None) -> bool:
        """Note that a crawl is not kept up to date any more, see `end_visits`. Return False if it was not. `spider`:
        the visits end only if this spider does them. Raises SinkError."""
        index = self.get(crawl)
        if index is None:
            return False
        with closing(index):
            kept = kept_crawl(index)
            if kept is None or spider not in (None, kept.spider):
                return False
            end_visits(index)
        return True

    def close(self) -> None:
        """Close the indexes into which `keep` has written."""
        with self._lock:
            self._open.close()


def page_identity(terms: Terms) -> Callable[[str], str]:
    """Return a function that returns the form of a URL by which two are one page, as in the frontier."""
    dropped = dropped_parameters(terms.drop_parameters) if terms.drop_parameters else None
    ignores_order = terms.query_order is QueryOrder.IGNORED

    def identity(url: str) -> str:
        url = dropped.remove(url) if dropped is not None else url
        return with_sorted_query(url) if ignores_order else url

    return identity


def kept_crawl(index: PageIndex) -> KeptCrawl | None:
    """Return the crawl whose pages a service visits. None: it visits none."""
    text = index.fact(_KEPT)
    return msgspec.json.decode(text, type=KeptCrawl) if text else None


def end_visits(index: PageIndex) -> None:
    """Note that the crawl is not kept up to date any more, until a request asks for it again. Its changes stay."""
    index.note(_KEPT, "")
